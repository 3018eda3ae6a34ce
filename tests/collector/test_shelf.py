"""From pages of machines to an engine's window: joined to its ranks, reset-corrected, replayed from a capture as read live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector import signals
from collector.capture import CaptureWriter, replay
from collector.hardware import nvml, procfs
from collector.intake import Intake
from collector.model import Page, Source, Window

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
FULL: dict[str, Any] = json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]  # two ranks
ENGINE, NODE, EXPORTER = "node-a:30000", "http://node-a:30000", "http://node-a:9400/metrics"


def page(source: Source, body: bytes, arrived: float, node: str = NODE) -> Page:
    return Page(ENGINE, node, source, arrived, 0.01, 200, "", body)


def loads(arrived: float) -> Page:
    return page(Source.SGLANG_LOADS, json.dumps(FULL).encode(), arrived)


def dcgm(arrived: float, rows: dict[str, tuple[float, ...]], host: str = "node-a") -> Page:
    lines = [
        f'DCGM_FI_DEV_{name}{{gpu="{k}",Hostname="{host}"}} {value}' for name, values in rows.items() for k, value in enumerate(values)
    ]
    return page(Source.DCGM, "\n".join(lines).encode() + b"\n", arrived, EXPORTER)


def driver(arrived: float, *cards: dict[str, Any]) -> Page:
    return page(Source.NVML, json.dumps({"format": nvml.FORMAT, "cards": cards}).encode(), arrived, "localhost")


def processes(arrived: float, *found: dict[str, Any]) -> Page:
    return page(Source.PROCFS, json.dumps({"format": procfs.FORMAT, "processes": found}).encode(), arrived, "localhost")


def window(*pages: Page, **options: Any) -> Window:
    intake = Intake(**options)
    for one in (*[loads(1000.0 + k) for k in range(11)], *pages):
        intake.feed(one)
    return intake.window(ENGINE)


def said(found: Window) -> str:
    return "\n".join(map(str, found.problems))


def test_cards_are_joined_to_ranks_by_order() -> None:
    """Two cards, two ranks: a gauge as its mean, a counter as its rate, on the engine's grid."""
    found = window(*[dcgm(1000.0 + 5 * k, {"SM_CLOCK": (1980, 990), "PCIE_REPLAY_COUNTER": (0, 20 * k)}) for k in range(3)])
    assert found.mean(signals.CARD_CLOCK) == pytest.approx([1980e6, 990e6])
    assert found.mean(signals.CARD_PCIE_REPLAYS) == pytest.approx([0.0, 4.0])
    assert found.get(signals.CARD_CLOCK).shape == found.get(signals.RUNNING).shape


def test_another_number_of_cards_gives_no_reading_and_a_way_out() -> None:
    """Four cards for two ranks: nobody's, until the user says whose."""
    pages = [dcgm(1000.0 + 5 * k, {"SM_CLOCK": (1, 2, 3, 4)}) for k in range(3)]
    ambiguous = window(*pages)
    assert not ambiguous.has(signals.CARD_CLOCK)
    assert "4 cards for 2 ranks" in said(ambiguous)
    assert "--gpus" in said(ambiguous)
    asked = window(*pages, gpus={0: ("3",), 1: ("0", "2")})
    assert asked.mean(signals.CARD_CLOCK) == pytest.approx([4e6, 1e6])  # the slowest of a rank's cards counts
    assert "--gpus" not in said(asked)


def test_a_counter_that_falls_is_a_restart_and_no_negative_rate() -> None:
    """A driver that restarts counts from zero: what it counts since then is real, and the restart is told."""
    counts = ((100.0, 7.0), (0.0, 7.0), (10.0, 7.0))
    found = window(*[dcgm(1000.0 + 5 * k, {"ECC_SBE_VOL_TOTAL": counts[k]}) for k in range(3)])
    age = 0.217604  # of rank 0's snapshot: the window ends so much before the last page
    assert found.mean(signals.CARD_CORRECTED) == pytest.approx([2.0 * (5 - age) / (10 - age), 0.0], abs=1e-6)
    assert "error counters of the cards of rank 0 fell" in said(found)


def test_the_driver_and_proc_join_by_process() -> None:
    """Card 1 computes for the process of rank 0, whatever the order says; other processes on the card do not matter."""
    cards: tuple[dict[str, Any], ...] = ({"index": 0, "pids": [52, 9]}, {"index": 1, "pids": [51]})
    named: tuple[dict[str, Any], ...] = (
        {"pid": 51, "title": "sglang::scheduler_DP0_TP0"},
        {"pid": 52, "title": "sglang::scheduler_DP1_TP1"},
    )
    pages = []
    for k in range(6):
        at = 1000.0 + 2 * k
        pages.append(processes(at, *({**p, "waited_ns": 10**8 * k * (p["pid"] - 51)} for p in named)))
        pages.append(driver(at, *({**c, "values": {signals.CARD_POWER: 100.0 + c["index"]}} for c in cards)))
    found = window(*pages)
    assert found.mean(signals.CARD_POWER) == pytest.approx([101.0, 100.0])
    assert found.mean(signals.RUN_QUEUE_DELAY) == pytest.approx([0.0, 0.05])


def test_of_a_ranks_processes_the_one_that_waits_most_speaks() -> None:
    """Rank 1's second process is kept from running; CPU time is that of the first. A card is its rank's whichever process is on it."""
    named = [(10 * (r + 1) + t, f"sglang::scheduler_DP{r}_TP{2 * r + t}") for r in range(2) for t in range(2)]
    waits = {10: 0, 11: 10**7, 20: 5 * 10**9, 21: 0}  # of before, except for process 21, which waits now
    pages = []
    for k in range(6):
        at = 1000.0 + 2 * k
        seen = [
            {"pid": pid, "title": title, "ran_ns": 10**8 * k * (1 + pid % 10), "waited_ns": waits[pid] + (10**9 * k if pid == 21 else 0)}
            for pid, title in named
        ]
        pages.append(processes(at, *seen))
        pages.append(
            driver(at, *({"index": g, "pids": [pid], "values": {signals.CARD_POWER: 100.0 + g}} for g, pid in enumerate((21, 11))))
        )
    found = window(*pages)
    assert found.mean(signals.RUN_QUEUE_DELAY) == pytest.approx([0.0, 0.5])
    assert found.mean(signals.PROCESS_CPU) == pytest.approx([0.05, 0.05])
    assert found.mean(signals.CARD_POWER) == pytest.approx([101.0, 100.0])


def test_processes_that_poll_do_not_hide_the_one_that_is_starved() -> None:
    """vLLM's scheduling processes yield between two looks and always wait on a busy node, 0.9 s per second; the workers tell who is late.
    Before there is a difference the scheduling ones speak."""

    def pages(late: float) -> list[Page]:
        delays = {10: 0.9, 20: 0.91, 11: 0.1, 21: 0.1 + late}
        titles = {10: "VLLM::EngineCore_DP0", 20: "VLLM::EngineCore_DP1", 11: "VLLM::Worker_DP0", 21: "VLLM::Worker_DP1"}
        return [
            processes(
                1000.0 + 2 * k,
                *({"pid": pid, "title": titles[pid], "waited_ns": round(2 * k * delays[pid] * 1e9)} for pid in titles),
            )
            for k in range(6)
        ]

    def seen(late: float) -> Window:
        intake = Intake()
        body = (Path(__file__).parents[1] / "captures" / "vllm-0.32.0" / "slowmoe-1.prom").read_bytes()
        for one in (*[page(Source.VLLM_METRICS, body, 1000.0 + k) for k in range(11)], *pages(late)):
            intake.feed(one)
        return intake.window(ENGINE)

    assert seen(0.3).mean(signals.RUN_QUEUE_DELAY) == pytest.approx([0.1, 0.4], abs=1e-6)
    assert seen(0.0).mean(signals.RUN_QUEUE_DELAY) == pytest.approx([0.9, 0.91], abs=1e-6)


def test_a_rank_that_starts_again_goes_on_in_its_place() -> None:
    """Another process id and counters from zero are no negative rate."""
    pages = [
        processes(1000.0 + k, {"pid": 7 + (k > 4), "title": "sglang::scheduler_DP0_TP0", "waited_ns": 10**8 * (k % 5)}) for k in range(10)
    ]
    rates = window(*pages).get(signals.RUN_QUEUE_DELAY)[0]
    assert np.nanmin(rates) >= 0.0
    assert np.nanmax(rates) == pytest.approx(0.1)


def test_where_both_saw_a_signal_the_exporter_speaks_and_nothing_is_added_up() -> None:
    """The same errors seen twice are not twice the errors."""
    pages: list[Page] = []
    for k in range(3):
        at = 1000.0 + 5 * k
        pages.append(dcgm(at, {"PCIE_REPLAY_COUNTER": (5 * k, 0)}))
        pages.append(
            driver(at, *({"index": g, "values": {signals.CARD_PCIE_REPLAYS: 5.0 * k * (g == 0), "card_power": 9.0}} for g in (0, 1)))
        )
    found = window(*pages)
    assert found.mean(signals.CARD_PCIE_REPLAYS) == pytest.approx([1.0, 0.0])
    assert found.mean(signals.CARD_POWER) == pytest.approx([9.0, 9.0])


def test_a_page_that_fails_is_a_problem_of_its_own() -> None:
    """The engine's signals stay, and the words are the page's."""
    failed = Page(ENGINE, EXPORTER, Source.DCGM, 1003.0, 0.1, 0, "", b"", f"{EXPORTER}: nothing listens there")
    found = window(failed, page(Source.PROCFS, b"[]", 1004.0, "localhost"))
    assert found.has(signals.RUNNING)
    assert "nothing listens there" in said(found)
    assert "not the JSON that was expected" in said(found)


def test_a_replay_of_a_capture_gives_the_same_window(tmp_path: Path) -> None:
    """Pages of machines are kept and read again like the engine's, by the same two steps."""
    pages = [
        one for k in range(6) for one in (loads(1000.0 + 2 * k), dcgm(1000.5 + 2 * k, {"SM_CLOCK": (1980, 990), "GPU_TEMP": (60, 61)}))
    ]
    pages += [processes(1001.0 + k, {"pid": 5, "title": "sglang::scheduler_DP0_TP0", "state": "T"}) for k in range(10)]
    live, again = Intake(), Intake()
    with CaptureWriter(tmp_path / "c", created=0.0) as writer:
        for one in pages:
            live.feed(one)
            writer.write(one)
    replay(tmp_path / "c", again)
    ours, theirs = live.window(ENGINE), again.window(ENGINE)
    assert set(ours.values) == set(theirs.values)
    assert {signals.CARD_CLOCK, signals.PROCESS_STOPPED} <= set(ours.values)
    for name, table in ours.values.items():
        np.testing.assert_array_equal(table, theirs.values[name])


def test_an_engine_that_says_nothing_has_no_window_of_its_cards() -> None:
    """Cards without ranks join nobody, and raise nothing."""
    intake = Intake()
    intake.feed(dcgm(1000.0, {"SM_CLOCK": (1, 2)}))
    assert intake.window(ENGINE).values == {}


def test_a_process_far_from_its_card_is_seen() -> None:
    """The NUMA node of the CPU that a process last ran on, against that of its card's slot: by order, one card for each local rank."""
    buses = ("0000:10:00.0", "0000:11:00.0")
    lines = [f'DCGM_FI_DEV_GPU_TEMP{{gpu="{k}",Hostname="a",pci_bus_id="0000{bus.upper()}"}} 50' for k, bus in enumerate(buses)]
    named = [{"pid": 50 + r, "title": f"sglang::scheduler_DP{r}_TP{r}", "numa": 1} for r in range(2)]
    body = {"format": procfs.FORMAT, "processes": named, "cards": {buses[0]: 0, buses[1]: 1}}
    pages = []
    for k in range(6):
        pages.append(page(Source.DCGM, "\n".join(lines).encode() + b"\n", 1000.0 + 2 * k, EXPORTER))
        pages.append(page(Source.PROCFS, json.dumps(body).encode(), 1000.5 + 2 * k, "localhost"))
    assert window(*pages).mean(signals.FAR_FROM_CARD) == pytest.approx([1.0, 0.0])
