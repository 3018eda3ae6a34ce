"""What each fault physically does to a cluster, in virtual time: only times, loads, waits and counters, and no diagnosis.

A scenario of the package is played for its whole minute; means before the onset are compared with means under the fault. Expected factors
come from the roofline's arithmetic where a comment says so, else they are relations with a margin.
"""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass

import numpy as np
import pytest

from workload import faults, harmless
from workload.config import ClusterConfig
from workload.device import Work
from workload.device.roofline import Roofline
from workload.device.state import CardState
from workload.scenario import bundled, load
from workload.schedule import Scheduled
from workload.traffic.presets import preset
from workload.virtual_time.simulate import simulate
from workload.virtual_time.table import Table

RANKS = 8
SETTLED = 3.0  # seconds until a fault shows in everything: counters are flushed once a second, batches in flight finish


@dataclass
class Span:
    """Means between two times, per step of the group; lists hold one value per rank, times are in seconds."""

    step: float
    waits: list[float]
    pairs: list[float]
    tokens: list[float]
    cpu: list[float]
    eager: float  # share of steps without a decode graph
    balance: float
    computed: list[float]  # prompt tokens per second
    cached: list[float]
    generated: list[float]
    retracted: list[float]  # requests, in all
    requests: list[float]  # running or waiting, as published
    running: list[float]
    snapshots: list[float]  # when the last one was made, seconds from the start


def span(table: Table, begin: float, end: float) -> Span:
    i, j = np.searchsorted(table.metrics_times, (begin, end))

    def grown(*names: str):
        return sum(table.counter(name)[j] - table.counter(name)[i] for name in names)

    state = 'dp_attention_steps_total{rank_state="%s"}'
    steps = float(grown(state % "active", state % "idle")[0])
    seconds = float(table.metrics_times[j] - table.metrics_times[i])
    overlap = 'forward_overlap="none"'
    wait = grown(f'scheduler_stage_seconds_total{{category="recv_requests",{overlap}}}', "dp_attention_sync_wait_seconds_sum")
    modes = [f'{{forward_mode="{mode}"}}' for mode in ("decode", "extend")]
    level = sum(float(grown(f"eplb_balancedness_sum{m}")[0]) for m in modes)
    levels = sum(float(grown(f"eplb_balancedness_count{m}")[0]) for m in modes)
    k, m = np.searchsorted(table.loads_times, (begin, end))
    return Span(
        step=seconds / max(steps, 1.0),
        waits=list(wait / max(steps, 1.0)),
        pairs=list(grown('dp_attention_pairs_total{kind="scheduled"}') / max(steps, 1.0)),
        tokens=list(grown('dp_attention_tokens_total{kind="scheduled"}') / max(steps, 1.0)),
        cpu=list(grown("scheduler_process_cpu_seconds_total") / max(steps, 1.0)),
        eager=float(grown('cuda_graph_passes_total{mode="decode_none"}', 'cuda_graph_passes_total{mode="prefill_none"}')[0])
        / max(steps, 1.0),
        balance=level / max(levels, 1.0),
        computed=list(grown('realtime_tokens_total{mode="prefill_compute"}') / seconds),
        cached=list(grown('realtime_tokens_total{mode="prefill_cache"}') / seconds),
        generated=list(grown('realtime_tokens_total{mode="decode"}') / seconds),
        retracted=list(grown("num_retracted_requests_total")),
        requests=list((table.load("running") + table.load("waiting"))[k:m].mean(axis=0)),
        running=list(table.load("running")[k:m].mean(axis=0)),
        snapshots=list(table.load("at")[m - 1]),
    )


@functools.cache
def played(name: str) -> Table:
    table = Table()
    scenario = load(name)
    simulate(scenario.config, scenario.schedule, scenario.duration, table, metrics_every=1.0)
    return table


def both(name: str) -> tuple[Span, Span, int]:
    """Before and under the fault of a scenario, and the rank that it is on."""
    (planned,) = load(name).schedule
    end = planned.onset + planned.duration
    return span(played(name), 3.0, planned.onset), span(played(name), planned.onset + SETTLED, end), planned.rank or 0


def others(values: list[float], rank: int) -> list[float]:
    return [v for r, v in enumerate(values) if r != rank]


def usual(values: list[float], rank: int) -> float:
    return statistics.median(others(values, rank))


def level_waits(now: Span) -> bool:
    """Nobody waits for a scheduler: a tenth of a step at most."""
    return max(now.waits) < 0.1 * now.step


def longer(works: int, states: list[CardState]) -> float:
    """How much longer than on sound cards a decode step of 9 requests of 8K tokens per rank takes, by the roofline."""
    roofline = Roofline.of(ClusterConfig())
    work = [Work(decode_tokens=9, decode_pairs=9 * 8192)] * works
    rows = [[9 * 8] * works]  # eight experts a token, level
    return roofline.step(work, rows, states) / roofline.step(work, rows)


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        ("gpu_throttled", CardState(clock=0.3)),
        ("gpu_degraded", CardState(memory=0.5)),
        ("link_degraded", CardState(link=1 / 8)),
        ("dispatch_skew", CardState(incast=13.0)),
    ],
)
def test_one_card_slows_every_step_and_no_scheduler_waits(fault, state):
    """Everybody's step is as much longer as the roofline says of that card; waits, pairs and balance name nobody."""
    before, now, rank = both(fault)
    expected = longer(RANKS, [state if r == rank else CardState() for r in range(RANKS)])
    assert expected > 1.3
    # prefill steps, which the arithmetic leaves out, are a fifth of all and stretched by other parts of the card
    assert now.step / before.step == pytest.approx(expected, rel=0.15)
    assert level_waits(now)
    assert max(now.pairs) < 3 * statistics.median(now.pairs)
    assert now.balance == pytest.approx(before.balance, abs=0.1)


def test_slow_process_burns_cpu_two_thirds_of_the_time():
    """In the mean the rank burns some 50 ms in most steps and waits least; in one second of three it is as its peers."""
    before, now, rank = both("slow_process")
    assert now.waits.index(min(now.waits)) == rank
    assert now.waits[rank] < 0.2 * usual(now.waits, rank)
    assert 0.020 < now.cpu[rank] < 0.045  # between 0 and 50 ms: two modes
    assert now.cpu[rank] > 10 * usual(now.cpu, rank)
    assert now.step > 1.1 * before.step


def test_slow_process_has_two_modes():
    """Second by second there are steps of a healthy length and steps of more than 50 ms."""
    steps = [span(played("slow_process"), at, at + 1.0).step for at in range(22, 44)]
    assert sum(step > 0.050 for step in steps) >= 10
    assert sum(step < 0.048 for step in steps) >= 3


def test_slow_node_makes_all_of_one_half_late_in_turn():
    """Each rank of that half waits less than every one of the other, and none of the half stands out."""
    before, now, rank = both("slow_node")
    ill = faults.load()["slow_node"].ranks(rank, RANKS)
    well = [r for r in range(RANKS) if r not in ill]
    assert len(ill) == 4
    assert max(now.waits[r] for r in ill) < 0.9 * min(now.waits[r] for r in well)
    assert max(now.waits[r] for r in ill) - min(now.waits[r] for r in ill) < 0.2 * max(now.waits)
    assert min(now.cpu[r] for r in ill) > 5 * max(now.cpu[r] for r in well)
    assert now.step > 1.3 * before.step


def test_burst_misrouted_comes_and_goes():
    """At its height the rank has twenty requests more than its peers; a moment before the next burst it has none more."""
    table = played("burst_misrouted")
    (planned,) = load("burst_misrouted").schedule
    requests = table.load("running") + table.load("waiting")
    times, rank = table.loads_times, planned.rank or 0
    during = requests[(times > planned.onset) & (times < planned.onset + planned.duration)]
    excess = [here[rank] - statistics.median(others(list(here), rank)) for here in during]
    assert max(excess) > 12
    assert sum(e < 6 for e in excess) >= 5  # five bursts, a quiet second in each
    before, now, rank = both("burst_misrouted")
    assert now.computed[rank] > 5 * usual(now.computed, rank)
    assert now.step > 1.1 * before.step


def test_prefix_cache_skew_makes_one_rank_compute_what_was_cached():
    """Its prompts are as many and as long as before, and none of their tokens comes from a cache."""
    before, now, rank = both("prefix_cache_skew")
    assert before.cached[rank] > 10 * before.computed[rank]
    assert now.computed[rank] > 10 * usual(now.computed, rank)
    assert now.cached[rank] < 0.1 * usual(now.cached, rank)
    assert now.requests[rank] < 2 * usual(now.requests, rank)
    assert now.eager > before.eager + 0.05
    assert now.step > 1.15 * before.step


def test_kv_pressure_takes_requests_back():
    """Retractions grow on that rank and nowhere else; requests queue there, and its peers' do not."""
    before, now, rank = both("kv_pressure")
    assert sum(before.retracted) == 0
    assert now.retracted[rank] >= 4
    assert sum(others(now.retracted, rank)) == 0
    assert now.requests[rank] - now.running[rank] > 1
    assert max(r - q for r, q in zip(others(now.requests, rank), others(now.running, rank), strict=True)) < 1
    assert now.running[rank] < usual(now.running, rank)


def test_kv_pressure_acts_on_questions_about_documents():
    """A rank whose pool owes tokens to the fault, with nothing running and a prompt half prefilled, goes on once they are there.

    Seed 3 came to such a moment: without pressure nothing is taken back, and with it only on that rank.
    """
    table = Table()
    simulate(ClusterConfig(seed=3, traffic=preset("rag")), [Scheduled("kv_pressure", rank=2, onset=10.0)], 60.0, table)
    now = span(table, 20.0, 55.0)
    assert now.retracted[2] > 0
    assert sum(others(now.retracted, 2)) == 0
    assert now.generated[2] > 0


def test_idle_lockstep_keeps_all_ranks_stepping_for_two_requests():
    """Only one rank has pairs, the others run idle steps, and a step takes nearly as long as under load: its fixed part."""
    before, now, rank = both("idle_lockstep")
    assert now.pairs[rank] > 5_000
    assert others(now.pairs, rank) == [0.0] * (RANKS - 1)
    idle = played("idle_lockstep").counter('dp_attention_steps_total{rank_state="idle"}')
    assert np.all(np.delete(idle[44] - idle[24], rank) > 400)  # twenty seconds of steps of less than 50 ms
    assert 0.6 * before.step < now.step < before.step


def test_stale_ledger_stops_one_ranks_snapshots_and_not_its_work():
    """Its snapshot stays that of the onset while it steps and generates on; its peers' are fresh."""
    before, now, rank = both("stale_ledger")
    (planned,) = load("stale_ledger").schedule
    assert planned.onset - 2 < now.snapshots[rank] < planned.onset + 1  # 15 results of a rank are some 0.6 s
    assert min(others(now.snapshots, rank)) - now.snapshots[rank] > planned.duration - 3
    assert now.tokens[rank] > 0
    assert now.generated[rank] > 0
    assert now.step == pytest.approx(before.step, rel=0.1)


def test_graph_fallback_costs_the_whole_group_an_eager_launch():
    """No step runs in a graph any more, and each takes at most the 4 ms of eager launches longer."""
    before, now, _ = both("graph_fallback")
    assert now.eager == 1.0
    assert before.eager < 0.5
    assert 0.001 < now.step - before.step < 0.006  # the part of the steps that had a graph times 4 ms, and noise
    assert level_waits(now)


def test_prefill_drags_decode_singles_out_nobody():
    """All ranks compute prompts about equally, and everybody's step is far longer: it is the layout."""
    before, now, _ = both("prefill_drags_decode")
    assert min(now.computed) > 3 * max(before.computed)
    assert max(now.computed) < 2.5 * min(now.computed)
    assert now.step > 1.5 * before.step
    assert now.eager > 0.5
    assert level_waits(now)


def test_outside_the_ranks_changes_nothing_inside():
    """Steps, waits and batches are those of a cluster without fault."""
    before, now, _ = both("outside_the_ranks")
    assert now.step == pytest.approx(before.step, rel=0.1)
    assert level_waits(now)
    assert statistics.mean(now.running) == pytest.approx(statistics.mean(before.running), rel=0.25)


@pytest.mark.parametrize("name", ["context_length_skew", "request_count_skew", "long_prefill"])
def test_uneven_load_shows_in_pairs(name):
    """The rank's pairs are several times its peers', and steps get longer without anybody waiting for a scheduler."""
    before, now, rank = both(name)
    assert now.pairs[rank] > 4 * usual(now.pairs, rank)
    assert now.step > 1.2 * before.step
    assert level_waits(now)


def test_speculation_skew_yields_fewer_tokens_a_row():
    """1 + .7 + .49 + .343 tokens of a row and step on every rank, 1 + .07 + .0049 + .0003 on the one whose drafts are refused; the last
    step of a request may make fewer. That rank's requests stay longer, and so it has more of them."""
    before, now, rank = both("speculation_skew")
    table = played("speculation_skew")
    (planned,) = load("speculation_skew").schedule
    times, moments = table.loads_times, table.moments()

    def a_row(begin: float, end: float) -> list[float]:
        grown = moments[np.searchsorted(times, end)] - moments[np.searchsorted(times, begin)]
        return list(grown[:, 5] / grown[:, 1])

    early, late = a_row(3.0, planned.onset), a_row(planned.onset + SETTLED, planned.onset + planned.duration)
    assert early == pytest.approx([2.533] * RANKS, rel=0.03)
    assert late[rank] == pytest.approx(1.075, rel=0.03)
    assert others(late, rank) == pytest.approx([2.533] * (RANKS - 1), rel=0.03)
    assert now.running[rank] > 1.5 * usual(now.running, rank)
    assert level_waits(now)
    assert max(before.running) < 2 * min(before.running)
    lengths = (table.load("verified") + table.load("accepted"))[-1] / table.load("verified")[-1]
    assert np.argmin(lengths) == rank


def test_two_causes_show_both_marks():
    """Long contexts on one rank and a starved process on another: the one has the pairs, the other waits least."""
    name = "two_long_contexts_and_starved_host"
    now = span(played(name), 24.0, 44.0)
    assert now.pairs.index(max(now.pairs)) == 0
    assert now.pairs[0] > 4 * usual(now.pairs, 0)
    assert now.waits.index(min(now.waits)) == 5
    assert now.waits[5] < 0.5 * usual(now.waits, 5)


def test_a_ramp_rises_in_steps():
    """Balance falls further with every fifth of the severity."""
    table = played("rising_hotspot")
    levels = [span(table, at, at + 3.0).balance for at in (10.0, 16.0, 26.0, 37.0)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] - levels[-1] > 0.3


@pytest.mark.parametrize(
    "name", [name for name in bundled() if name.startswith("healthy_") and load(name).config.traffic == load("healthy_chat").config.traffic]
)
def test_harmless_events_cost_little(name):
    """From ten seconds on, the minute has at most a twelfth fewer steps than the one without the event."""
    steps = [span(played(n), 10.0, 59.0).step for n in (name, "healthy_chat")]
    assert steps[0] < 1.09 * steps[1]


def test_a_drained_rank_idles_and_comes_back():
    """Its pairs fall to a fraction of its peers' and recover."""
    rank = both("healthy_drained_rank")[2]
    late = span(played("healthy_drained_rank"), 38.0, 45.0)
    after = span(played("healthy_drained_rank"), 52.0, 59.0)
    assert late.pairs[rank] < 0.2 * usual(late.pairs, rank)
    assert after.pairs[rank] > 0.3 * usual(after.pairs, rank)


def test_every_fault_and_harmless_event_has_a_scenario():
    """A scenario of a fault's own name injects just that one; harmless events are in scenarios called healthy."""
    for fault in faults.load():
        assert [s.fault for s in load(fault).schedule] == [fault]
    assert {s.fault for name in bundled() if name.startswith("healthy_") for s in load(name).schedule} == set(harmless.load())
    assert all(isinstance(s, Scheduled) for name in bundled() for s in load(name).schedule)
