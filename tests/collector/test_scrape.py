"""Pages asked for again and again, each on its own clock, from a server on this machine. No assertion is on speed."""

from __future__ import annotations

import asyncio
import json
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from collector.capture import CaptureWriter, replay
from collector.intake import Intake
from collector.model import Page, Source
from collector.scrape import Target, _Fetcher, _poll, parse_target, scrape

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
LOADS, METRICS, INFO = Source.SGLANG_LOADS, Source.SGLANG_METRICS, Source.SGLANG_SERVER_INFO
PAGE = (CAPTURES / "tp4-dp2-ep4.prom").read_bytes()
FULL: dict[str, Any] = json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]


def engine(path: str) -> tuple[int, bytes, dict[str, str]]:
    """All three pages of a healthy engine."""
    bodies = {"/metrics": PAGE, "/v1/loads": json.dumps(FULL).encode(), "/server_info": b'{"dp_size": 2, "attn_dp_size": 1}'}
    return 200, bodies[path], {}


def test_loads_and_info_are_asked_of_node_0_and_metrics_of_all(serving: Any, seeing: Any) -> None:
    """Follower nodes have no /v1/loads; each node shows the counters of its own ranks only."""

    async def run() -> tuple[list[Page], list[set[str]]]:
        async with serving(engine) as first, serving(engine) as second:
            seen = seeing(
                lambda pages: sum(p.source is METRICS for p in pages) >= 6 and len({p.node for p in pages}) == 2 and len(pages) > 9
            )
            target = parse_target(f"{first.url},{second.url}")
            await scrape([target], seen, intervals={LOADS: 0.01, METRICS: 0.01, INFO: inf}, stop=seen.stop)
            return list(seen.pages), [{path for path, _ in server.asked} for server in (first, second)]

    pages, paths = asyncio.run(run())
    assert paths == [{"/v1/loads", "/metrics", "/server_info"}, {"/metrics"}]
    assert sum(page.source is INFO for page in pages) == 1
    assert all(page.error is None for page in pages)


def test_a_slow_target_delays_no_other(serving: Any, seeing: Any) -> None:
    """While one engine never answers, the other is read on; the slow one's pages wait for nobody either."""

    def silent(path: str) -> Any:
        return None if path == "/metrics" else engine(path)

    async def run() -> list[Page]:
        async with serving(silent) as slow, serving(engine) as fast:

            def enough(pages: list[Page]) -> bool:
                return all(sum((page.engine, page.source) == key for page in pages) >= 20 for key in expected)

            expected = {(fast.url, METRICS), (fast.url, LOADS), (slow.url, LOADS)}
            seen = seeing(enough)
            targets = [parse_target(slow.url), parse_target(fast.url)]
            await scrape(targets, seen, intervals={LOADS: 0.01, METRICS: 0.01}, stop=seen.stop, timeouts={LOADS: 60.0, METRICS: 60.0})
            assert {(page.engine, page.source) for page in seen.pages} == expected
            return list(seen.pages)

    assert all(page.error is None for page in asyncio.run(run()))


def test_missed_ticks_are_skipped_not_made_up_for(serving: Any, seeing: Any) -> None:
    """Never two requests of one page at a time, and no burst after a slow one."""
    open_now, most, number = 0, 0, 0

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most, number
        open_now, number = open_now + 1, number + 1
        most = max(most, open_now)
        if number == 2:
            await asyncio.sleep(0.2)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE)
        open_now -= 1

    async def run() -> list[Page]:
        async with serving(answer) as server:
            seen = seeing(lambda pages: len(pages) >= 5)
            await scrape([Target("e", (server.url,))], seen, intervals={METRICS: 0.02}, stop=seen.stop)
            return list(seen.pages)

    pages = asyncio.run(run())
    assert most == 1
    assert number <= len(pages) + 1  # stopping may meet one request under way
    assert [page.arrived for page in pages] == sorted(page.arrived for page in pages)


def test_a_page_is_late_by_what_its_reader_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of the test's own, a page each second: woken 0.3 s late, the page is so; one that takes 2.5 s makes the next one skip
    ticks and not late; after an oversleep of 2.2 s the next is on the old deadlines again."""
    now, began = 0.0, list[float]()
    takes, oversleeps = iter([0.1, 0.1, 2.5, 0.1, 0.1, 0.1]), iter([0.3, 0.0, 0.0, 2.2, 0.0, 0.0])

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds + next(oversleeps)

    class Fetcher:
        unreached = False

        @property
        def worthwhile(self) -> bool:
            return len(began) < 6

        async def fetch(self) -> Page:
            nonlocal now
            began.append(now)
            now += next(takes)
            return Page("e", "n", METRICS, now, 0.1, 200, "", PAGE)

    pages: list[Page] = []
    monkeypatch.setattr("collector.scrape.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("collector.scrape.asyncio", SimpleNamespace(sleep=sleep))
    asyncio.run(_poll(cast(_Fetcher, Fetcher()), METRICS, {METRICS: 1.0}, pages.append))
    assert began == pytest.approx([0.0, 1.3, 2.0, 5.0, 8.2, 9.0])
    assert [page.late for page in pages] == pytest.approx([0.0, 0.3, 0.0, 0.0, 2.2, 0.0])


def test_an_interval_may_change_while_pages_come(serving: Any, seeing: Any) -> None:
    """The time to the next page is what the table holds after this one: set to a day, none comes, while another source goes on."""

    async def run() -> list[Page]:
        intervals = {LOADS: 0.01, METRICS: 0.01}

        def enough(pages: list[Page]) -> bool:
            if any(page.source is METRICS for page in pages):
                intervals[METRICS] = 86_400.0
            return sum(page.source is LOADS for page in pages) >= 20

        async with serving(engine) as server:
            seen = seeing(enough)
            await scrape([Target("e", (server.url,))], seen, intervals=intervals, stop=seen.stop)
            return list(seen.pages)

    pages = asyncio.run(run())
    assert sum(page.source is METRICS for page in pages) == 1


def test_stop_ends_a_request_under_way(serving: Any) -> None:
    """A person who presses Ctrl-C does not wait for a hanging engine."""

    async def run() -> None:
        asked = asyncio.Event()

        async def silent(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
            asked.set()
            await asyncio.Event().wait()

        async with serving(silent) as server:
            stop = asyncio.Event()
            task = asyncio.create_task(scrape([Target("e", (server.url,))], lambda page: None, stop=stop))
            await asked.wait()
            stop.set()
            await task

    asyncio.run(run())


def test_what_the_consumer_raises_ends_the_scrape(serving: Any) -> None:
    """A defect is not hidden."""

    def broken(page: Page) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        async with serving(engine) as server:
            await scrape([Target("e", (server.url,))], broken, intervals={METRICS: 1.0}, stop=asyncio.Event())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run())
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


def test_a_live_scrape_and_its_replay_give_the_same_window(serving: Any, seeing: Any, tmp_path: Path) -> None:
    """Scraped into an intake and a capture at once; the capture read back gives the same numbers at the same times."""
    steps = 0

    def moving(path: str) -> tuple[int, bytes, dict[str, str]]:
        nonlocal steps
        steps += 10
        if path != "/metrics":
            return engine(path)
        lines = "".join(f'sglang:dp_attention_steps_total{{dp_rank="{r}",rank_state="active",tp_rank="{r}"}} {steps}\n' for r in (0, 1))
        return 200, lines.encode(), {}

    async def run(intake: Intake, writer: CaptureWriter) -> str:
        async with serving(moving) as server:
            seen = seeing(lambda pages: pages[-1].arrived - pages[0].arrived > 1.2 and sum(p.source is METRICS for p in pages) > 8)

            def both(page: Page) -> None:
                intake.feed(page)
                writer.write(page)
                seen(page)

            target = parse_target(server.url)
            await scrape([target], both, intervals={LOADS: 0.05, METRICS: 0.1, INFO: inf}, stop=seen.stop)
            return target.engine

    live, again = Intake(), Intake()
    with CaptureWriter(tmp_path / "x", created=0.0, redacted=False) as writer:
        name = asyncio.run(run(live, writer))
    replay(tmp_path / "x", again)
    a, b = live.window(name), again.window(name)
    assert a.has("steps_active", "running_requests")
    assert (a.ranks, a.scrapes, a.engine, a.problems) == (b.ranks, b.scrapes, b.engine, b.problems)
    assert np.array_equal(a.edges, b.edges)
    assert a.values.keys() == b.values.keys()
    assert all(np.array_equal(a.values[key], b.values[key], equal_nan=True) for key in a.values)


VLLM = (CAPTURES.parent / "vllm-0.32.0" / "slowmoe-1.prom").read_bytes()


def test_a_vllm_target_is_recognised_and_no_longer_asked_for_sglangs_pages(serving: Any, seeing: Any, tmp_path: Path) -> None:
    """Its /metrics is handed on as vLLM's; once it was seen, only that is asked for. Live and replayed, the window is vLLM's, and that
    it has no /v1/loads is no problem."""

    def answer(path: str) -> tuple[int, bytes, dict[str, str]]:
        return (200, VLLM, {}) if path == "/metrics" else (404, b"", {})

    async def run() -> tuple[list[str], list[Page]]:
        async with serving(answer) as server:
            seen = seeing(lambda pages: sum(page.source is Source.VLLM_METRICS for page in pages) >= 12)
            await scrape([Target(server.url, (server.url,))], seen, intervals={LOADS: 0.01, METRICS: 0.01, INFO: inf}, stop=seen.stop)
            return [path for path, _ in server.asked], seen.pages

    asked, pages = asyncio.run(run())
    assert set(asked[-8:]) == {"/metrics"}
    assert {page.source for page in pages if page.error is None} == {Source.VLLM_METRICS}
    live, replayed = Intake(), Intake()
    with CaptureWriter(tmp_path / "c", created=0.0, redacted=False) as writer:
        for page in pages:
            live.feed(page)
            writer.write(page)
    replay(tmp_path / "c", replayed)
    windows = [intake.window(pages[0].engine) for intake in (live, replayed)]
    assert [(w.engine.kind, w.ranks) for w in windows] == [("vllm", (0, 1))] * 2
    assert not any("v1/loads" in str(problem) for w in windows for problem in w.problems)
