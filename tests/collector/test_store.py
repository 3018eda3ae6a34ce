"""Readings into windows: resets, interpolation, gaps, lives of ranks, memory. Expected values are arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import grid, signals
from collector.engines.sglang_loads import FIELDS, MOMENTS, SECTION_FIELDS
from collector.engines.sglang_metrics import ROWS
from collector.model import Facts, Problem, Reading, Source, Window
from collector.ring import Ring
from collector.store import Store

LOADS, METRICS, INFO = Source.SGLANG_LOADS, Source.SGLANG_METRICS, Source.SGLANG_SERVER_INFO
STEPS, PAIRS, RUNNING, AGE = signals.STEPS_ACTIVE, signals.ATTENTION_PAIRS, signals.RUNNING, signals.SNAPSHOT_AGE


def reading(
    arrived: float,
    values: dict[str, dict[int, float]],
    *,
    source: Source = METRICS,
    node: str = "http://a:1",
    ages: dict[int, float] | None = None,
    speakers: dict[int, int] | None = None,
    problems: tuple[Problem, ...] = (),
) -> Reading:
    ranks = {rank for found in values.values() for rank in found}
    times = {rank: arrived - (ages or {}).get(rank, 0.0) for rank in ranks}
    return Reading("e", node, source, arrived, times, values, Facts(), problems, speakers or {})


def store(*readings: Reading) -> Store:
    made = Store("e", "sglang")
    for one in readings:
        made.feed(one)
    return made


def whole(made: Store, step: float | None = None) -> Window:
    return made.window(-np.inf, np.inf, step)


def said(window: Window) -> str:
    return "\n".join(map(str, window.problems))


def increase(window: Window, signal: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(R,) integral of a rate over the window."""
    total: np.ndarray[tuple[int], np.dtype[np.float64]] = (window.get(signal) * np.diff(window.edges)).sum(axis=1)
    return total


# counters


def test_a_steady_counter_is_its_rate() -> None:
    """50 a second, read every 2 s: 50 in every interval, and the intervals are 2 s long."""
    window = whole(store(*(reading(1000.0 + 2 * k, {STEPS: {0: 100.0 * k}}) for k in range(6))))
    assert np.diff(window.edges).tolist() == [2.0] * 5
    assert window.get(STEPS) == pytest.approx(np.full((1, 5), 50.0))
    assert (window.scrapes, window.ranks, window.problems) == (6, (0,), ())


def test_a_value_after_a_reset_counts_from_zero() -> None:
    """10, 20, then 5: the process restarted and did 5 since; the window says so, once."""
    window = whole(store(*(reading(1000.0 + k, {STEPS: {0: v}, PAIRS: {0: 2 * v}}) for k, v in enumerate([10.0, 20.0, 5.0, 15.0]))))
    assert window.get(STEPS).tolist() == [[10.0, 5.0, 10.0]]
    assert window.get(PAIRS).tolist() == [[20.0, 10.0, 20.0]]
    assert said(window).count("rank 0 restarted at 1970-01-01T00:16:42+00:00") == 1


def test_ranks_that_restart_together_are_told_in_one_line() -> None:
    """An engine that restarts is one event."""
    values = ([9.0] * 8, [1.0] * 8, [2.0] * 8)
    window = whole(store(*(reading(1000.0 + k, {STEPS: dict(enumerate(v))}) for k, v in enumerate(values))))
    assert len(window.problems) == 1
    assert "ranks 0-7 restarted" in said(window)


def test_a_counter_that_falls_again_and_again_suggests_two_engines() -> None:
    """Two engines behind one load-balanced URL look like endless restarts."""
    window = whole(store(*(reading(1000.0 + k, {STEPS: {0: 1000.0 + k if k % 2 else 10.0 + k}}) for k in range(9))))
    assert "if two engines answer at one URL" in said(window)


def test_rounding_is_no_reset() -> None:
    """A sum of floats in another order may be an ulp lower; a reset there would count everything twice."""
    window = whole(
        store(reading(1000.0, {STEPS: {0: 1e6}}), reading(1001.0, {STEPS: {0: 1e6 * (1 - 1e-15)}}), reading(1002.0, {STEPS: {0: 1e6 + 4}}))
    )
    assert increase(window, STEPS) == pytest.approx(4.0)
    assert window.problems == ()


NO_GAP = st.floats(0.6, 1.7)  # seconds between samples: the longest is less than three of the shortest


@given(st.lists(st.tuples(NO_GAP, st.floats(0.0, 1e6), st.booleans()), min_size=2, max_size=30), st.floats(0.0, 1e6))
@settings(deadline=None)
def test_the_integral_of_the_rates_is_the_increase(steps: list[tuple[float, float, bool]], begin: float) -> None:
    """Whatever the sample times and resets: over the window, rates times lengths add up to what was counted."""
    now, level, counted = 1000.0, begin, 0.0
    made = store(reading(now, {STEPS: {0: level}}))
    for wait, step, restart in steps:
        now += wait
        level = step if restart and step < level * 0.999 else level + step  # a fall that shows, or no restart
        counted += step
        made.feed(reading(now, {STEPS: {0: level}}))
    window = whole(made)
    assert (window.start, window.end) == (1000.0, now)
    assert increase(window, STEPS) == pytest.approx(counted, rel=1e-9, abs=1e-5)


@given(
    st.lists(NO_GAP, min_size=12, max_size=12),
    st.lists(st.floats(0.0, 1e4), min_size=12, max_size=12),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
@settings(deadline=None)
def test_counters_are_linear_between_samples(waits: list[float], steps: list[float], left: float, right: float) -> None:
    """Over any [start, end] inside the samples the increase is that of the straight lines between them: numpy.interp is the oracle."""
    times, level = 1000.0 + np.cumsum(waits), np.cumsum(steps)
    start, end = sorted(times[0] + np.array([left, right]) * (times[-1] - times[0]))
    window = store(*(reading(t, {STEPS: {0: v}}) for t, v in zip(times, level, strict=True))).window(float(start), float(end))
    if len(window.edges) > 1:
        assert (window.start, window.end) == (start, end)
        expected = np.interp(end, times, level) - np.interp(start, times, level)
        assert increase(window, STEPS) == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_ranks_are_read_at_their_own_times() -> None:
    """Rank 1's snapshot is half a second older than the reply that carries it; both count 10 a second, and both are read so."""
    ages = {0: 0.0, 1: 0.5}
    window = whole(
        store(
            *(reading(t, {signals.DECODE_STEPS: {r: 10 * (t - ages[r]) for r in ages}}, source=LOADS, ages=ages) for t in range(1000, 1010))
        )
    )
    assert window.end == pytest.approx(1008.5)  # the grid ends where every rank still has a sample
    assert window.get(signals.DECODE_STEPS) == pytest.approx(10.0)


def test_a_long_gap_is_not_bridged_and_a_short_one_is() -> None:
    """Two lost scrapes are an accident, an outage is unknown."""
    short = [1000.0, 1001, 1002, 1005, 1006, 1007]
    long = [1000.0, 1001, 1002, 1006, 1007, 1008]
    assert np.isfinite(whole(store(*(reading(t, {STEPS: {0: t}}) for t in short)), 1.0).get(STEPS)).all()
    window = whole(store(*(reading(t, {STEPS: {0: t}}) for t in long)), 1.0)
    assert np.isnan(window.get(STEPS)).tolist() == [[False, False, True, True, True, True, False, False]]


def test_an_interval_around_a_gap_is_exact() -> None:
    """Both its edges are known, so its increase is, whatever was missed in between."""
    times = [1000.0, 1001, 1002, 1010, 1011, 1012]
    assert whole(store(*(reading(t, {STEPS: {0: 3 * t}}) for t in times)), 12.0).get(STEPS).tolist() == [[3.0]]


def test_a_signal_absent_from_a_page_costs_only_itself() -> None:
    """One NaN reading between two good ones: the counter is bridged, its neighbour untouched."""
    values: list[dict[str, dict[int, float]]] = [{STEPS: {0: 1.0}, PAIRS: {0: 5.0}}, {PAIRS: {0: 6.0}}, {STEPS: {0: 5.0}, PAIRS: {0: 9.0}}]
    window = whole(store(*(reading(1000.0 + k, v) for k, v in enumerate(values))))
    assert window.get(STEPS).tolist() == [[2.0, 2.0]]
    assert window.get(PAIRS).tolist() == [[1.0, 3.0]]


# gauges


def test_gauges_are_averaged_over_the_interval() -> None:
    """Samples at 1000..1004, intervals of 2 s: [1000, 1002) holds two, the last one [1002, 1004] three."""
    made = store(*(reading(1000.0 + k, {RUNNING: {0: v}}, source=LOADS) for k, v in enumerate([4.0, 6.0, 8.0, 8.0, 2.0])))
    assert whole(made, 2.0).get(RUNNING).tolist() == [[5.0, 6.0]]


def test_a_gauge_holds_until_it_is_stale() -> None:
    """No page from 1003 to 1013: the last value stands in for three intervals, then nothing does."""
    times = [1000.0, 1001, 1002, 1003, 1013, 1014, 1015, 1016]
    window = whole(store(*(reading(t, {RUNNING: {0: t - 1000}}, source=LOADS) for t in times)), 1.0)
    assert window.get(RUNNING)[0, 3:7].tolist() == pytest.approx([3.0, 3.0, 3.0, np.nan], nan_ok=True)
    assert np.isnan(window.get(RUNNING)[0, 6:13]).all()


def test_the_same_snapshot_again_keeps_gauges_and_counts_nothing() -> None:
    """A stopped engine serves its last snapshot for ever: the level stays, the age grows, no rate is made up from it."""
    made = Store("e", "sglang")
    for k in range(20):
        published = min(1000.0 + k, 1005.0)
        jitter = 0.003 * (k % 2)  # the arrival less the age moves with the network
        values = {RUNNING: {0: 3.0}, AGE: {0: 1000 + k - published}, signals.DECODE_STEPS: {0: 30 * (published - 999)}}
        made.feed(reading(1000.0 + k, values, source=LOADS, ages={0: 1000 + k - published - jitter}))
    window = whole(made, 1.0)
    assert (window.get(RUNNING) == 3.0).all()
    assert window.get(AGE)[0, -1] == pytest.approx(13.5)  # ages 13 and 14 in the last interval
    rate = window.get(signals.DECODE_STEPS)[0]
    assert rate[:5] == pytest.approx(30.0)
    assert np.isnan(rate[6:]).all()


# which readings count


def test_readings_that_are_not_newer_are_ignored() -> None:
    """Duplicates and late ones of the same node and source; another source or node is another matter."""
    made = Store("e", "sglang")
    assert made.feed(reading(1000.0, {STEPS: {0: 1.0}}))
    assert not made.feed(reading(1000.0, {STEPS: {0: 9.0}}))
    assert not made.feed(reading(999.0, {STEPS: {0: 9.0}}))
    assert not made.feed(reading(float("nan"), {STEPS: {0: 9.0}}))
    assert made.feed(reading(1000.0, {RUNNING: {0: 9.0}}, source=LOADS))
    assert made.feed(reading(1000.0, {STEPS: {1: 9.0}}, node="http://b:1"))
    made.feed(reading(1002.0, {STEPS: {0: 5.0}}))
    assert whole(made).get(STEPS)[0].tolist() == [2.0]


def test_two_nodes_make_one_engine() -> None:
    """Each node shows its own ranks, at its own moments."""
    made = Store("e", "sglang")
    for k in range(6):
        made.feed(reading(1000.0 + 2 * k, {STEPS: {0: 10.0 * k, 1: 10.0 * k}}))
        made.feed(reading(1000.7 + 2 * k, {STEPS: {2: 10.0 * k, 3: 10.0 * k}}, node="http://b:1"))
    window = whole(made)
    assert window.ranks == (0, 1, 2, 3)
    assert window.get(STEPS) == pytest.approx(5.0)
    assert window.problems == ()


def test_of_two_nodes_with_the_same_rank_the_lower_process_speaks() -> None:
    """A DP rank whose TP ranks span nodes: the second node shows it too, with created zeros. Either may come first."""
    for order in ((0, 1), (1, 0)):
        made = Store("e", "sglang")
        for k in range(4):
            pages = (
                reading(1000.0 + 2 * k, {STEPS: {0: 100.0 * k}}, speakers={0: 0}),
                reading(1000.0 + 2 * k, {STEPS: {0: 0.0}, signals.SCHEDULER_CPU: {0: 1.0 * k}}, node="http://b:1", speakers={0: 8}),
            )
            for which in order:
                made.feed(pages[which])
        window = whole(made)
        assert window.get(STEPS) == pytest.approx(50.0)
        assert window.problems == ()


def test_two_nodes_with_equal_right_to_a_rank_are_two_engines() -> None:
    """Joined by mistake with a comma: said, with both names."""
    made = Store("e", "sglang")
    for k in range(3):
        for node in ("http://a:1", "http://b:1"):
            made.feed(reading(1000.0 + k, {STEPS: {0: 1.0 * k, 1: 1.0 * k}}, node=node, speakers={0: 0, 1: 1}))
    assert "http://a:1 and http://b:1 both report ranks 0-1" in said(whole(made))


def test_engine_wide_signals_have_one_row() -> None:
    """Rank -1 of a reading is the engine; it is no rank of the window."""
    made = store(*(reading(1000.0 + k, {STEPS: {0: 1.0 * k, 1: 1.0 * k}, signals.BALANCEDNESS_SUM: {-1: 2.0 * k}}) for k in range(4)))
    window = whole(made)
    assert window.ranks == (0, 1)
    assert window.get(signals.BALANCEDNESS_SUM).tolist() == [[2.0, 2.0, 2.0]]


# lives of ranks


def test_a_rank_that_appears_is_unknown_before() -> None:
    """NaN before its first sample, and a problem with the moment."""
    made = store(*(reading(1000.0 + k, {STEPS: {0: 1.0 * k} | ({5: 1.0 * k} if k >= 6 else {})}) for k in range(12)))
    window = whole(made)
    assert window.ranks == (0, 5)
    assert np.isnan(window.get(STEPS)[1, :6]).all()
    assert window.get(STEPS)[1, 6:] == pytest.approx(1.0)
    assert "rank 5 appeared at 1970-01-01T00:16:46" in said(window)


def test_a_rank_that_vanishes_is_unknown_after() -> None:
    """NaN after its last sample; when it left the window altogether its end is still told."""
    made = store(*(reading(1000.0 + k, {STEPS: {0: 1.0 * k} | ({5: 1.0 * k} if k < 6 else {})}) for k in range(20)))
    window = whole(made)
    assert np.isfinite(window.get(STEPS)[1, :5]).all()
    assert np.isnan(window.get(STEPS)[1, 6:]).all()
    assert "rank 5 is gone since 1970-01-01T00:16:45" in said(window)
    late = made.window(1012.0, 1019.0)
    assert late.ranks == (0,)
    assert "rank 5 is gone" in said(late)


def test_expected_ranks_that_were_never_seen_are_named() -> None:
    """/server_info says eight, the pages show six."""
    made = Store("e", "sglang")
    made.feed(Reading("e", "http://a:1", INFO, 999.0, facts=Facts(expected_ranks=8, model="m")))
    for k in range(3):
        made.feed(reading(1000.0 + k, {STEPS: dict.fromkeys((0, 1, 2, 5, 6, 7), 1.0 * k)}))
    window = whole(made)
    assert "ranks 3-4 of 8 not seen" in said(window)
    assert window.engine.facts.model == "m"


def test_a_source_that_falls_silent_leaves_nan_and_says_so() -> None:
    """Metrics stop after 5 s; load snapshots go on and the window with them."""
    made = Store("e", "sglang")
    for k in range(30):
        made.feed(reading(1000.0 + k, {RUNNING: {0: 2.0}}, source=LOADS))
        if k <= 5:
            made.feed(reading(1000.0 + k, {STEPS: {0: 10.0 * k}}))
    window = whole(made)
    assert window.end == 1029.0
    assert window.get(STEPS)[0, :5] == pytest.approx(10.0)
    assert np.isnan(window.get(STEPS)[0, 6:]).all()
    assert "sglang-metrics of http://a:1: no page since 1970-01-01T00:16:45" in said(window)


def test_a_source_that_starts_a_little_later_trims_the_grid() -> None:
    """Loads from 1000, metrics from 1001.3 every 2 s: every interval holds both."""
    made = Store("e", "sglang")
    for k in range(20):
        made.feed(reading(1000.0 + k, {RUNNING: {0: 2.0}}, source=LOADS))
        if k % 2:
            made.feed(reading(1000.3 + k, {STEPS: {0: 10.0 * k}}))
    window = whole(made)
    assert window.start == pytest.approx(1001.3)
    assert np.isfinite(window.get(STEPS)).all()
    assert np.isfinite(window.get(RUNNING)).all()
    assert np.diff(window.edges) == pytest.approx(2.0, rel=0.1)


def test_problems_of_the_last_readings_are_the_windows() -> None:
    """Each once, and gone when the next page is clean."""
    bad = Problem("http://a:1/metrics", "something odd")
    made = store(*(reading(1000.0 + k, {STEPS: {0: 1.0 * k}}, problems=(bad, bad)) for k in range(3)))
    assert whole(made).problems == (bad,)
    made.feed(reading(1003.0, {STEPS: {0: 3.0}}))
    assert whole(made).problems == ()


# grids


@pytest.mark.parametrize("readings", [[], [reading(1000.0, {STEPS: {0: 1.0}})]])
def test_without_two_samples_there_is_no_interval(readings: list[Reading]) -> None:
    """An empty window with one edge and a problem, not an exception."""
    window = store(*readings).window(900.0, 1100.0)
    assert len(window.edges) == 1
    assert dict(window.values) == {}
    assert "a rate needs two" in said(window)
    assert np.isnan(window.mean(STEPS)).all()


def test_a_span_before_or_after_the_samples_is_empty() -> None:
    """Clamping leaves nothing, in either direction."""
    made = store(*(reading(1000.0 + k, {STEPS: {0: 1.0 * k}}) for k in range(10)))
    for start, end in ((100.0, 200.0), (2000.0, 2100.0)):
        assert len(made.window(start, end).edges) == 1


def test_a_given_step_is_kept_and_the_newest_intervals_too() -> None:
    """9 s of samples in steps of 4 s: the last 8 s."""
    made = store(*(reading(1000.0 + k, {STEPS: {0: 1.0 * k}}) for k in range(10)))
    assert made.window(-np.inf, np.inf, 4.0).edges.tolist() == [1001.0, 1005.0, 1009.0]


def test_the_number_of_intervals_is_bounded() -> None:
    """A capture with absurd times must not allocate without end."""
    made = store(*(reading(t, {STEPS: {0: 1.0}}) for t in (0.0, 1.0, 2.0, 3.0, 4e9)))
    assert len(whole(made).edges) <= grid.MAX_INTERVALS + 1


# memory

LOAD_SIGNALS = [AGE, *(row[0] for table in (FIELDS, MOMENTS) for row in table), signals.ACCEPT_LENGTH]
OF_SPLIT = [row[0] for row in SECTION_FIELDS if row[0] != signals.ACCEPT_LENGTH]
METRIC_SIGNALS = [*(row.signal for row in ROWS), signals.EXPERT_LOAD]


@pytest.mark.parametrize(("more", "most"), [((), 64), (OF_SPLIT, 72)], ids=["unified", "split"])
def test_memory_is_bounded_per_rank(more, most) -> None:
    """All of SGLang's signals, five minutes at 1 s: at most 64 KiB a rank, eight more with the hand-over of a split engine, and once five
    minutes are held not a byte more however long it runs."""
    ranks = 16
    made = Store("e", "sglang", depth_s=300)
    sizes = []
    for k in range(700):
        t, table = 1000.0 + k, dict.fromkeys(range(ranks), float(k))
        made.feed(reading(t, dict.fromkeys([*LOAD_SIGNALS, *more], table), source=LOADS, ages=dict.fromkeys(range(ranks), 0.2)))
        made.feed(reading(t, dict.fromkeys(METRIC_SIGNALS, table)))
        sizes.append(made.nbytes)
    assert max(sizes) == sizes[300] == sizes[-1]
    assert sizes[-1] / ranks <= most * 1024
    window = whole(made)
    assert window.end - window.start == pytest.approx(299.8, abs=0.5)
    assert window.get(signals.DECODE_STEPS) == pytest.approx(1.0)


@pytest.mark.parametrize("every", [0.2, 1.0, 5.0, 7.0, 60.0, 200.0])
def test_the_ring_is_as_deep_as_asked_at_every_pace(every) -> None:
    """A minute deep, ten minutes after the start: a minute of counts, or all that a page a second holds of it, in no more rows than twice
    the pages of that minute (8 at least)."""
    ring = Ring(60.0)
    for k in range(int(600 / every) + 1):
        ring.add(1000.0 + every * k, {0: 1000.0 + every * k}, {STEPS: {0: 3.0 * every * k}})
    arrived, counts = ring.arrived(), ring.values(STEPS)[:, 0]
    assert arrived[-1] - arrived[0] >= min(60.0, 60 * every)
    assert np.diff(counts) == pytest.approx(3.0 * np.diff(arrived))
    assert np.diff(arrived) == pytest.approx(every)
    assert len(arrived) <= 61
    assert ring.nbytes <= (2 * min(61, max(60 / every + 2, 4)) * (8 + 4 + 8)) + 24


def test_the_ring_keeps_the_newest() -> None:
    """Ten pages deep after a hundred: the last nine seconds, with resets before them still accounted for."""
    made = Store("e", "sglang", depth_s=9)
    for k in range(100):
        made.feed(reading(1000.0 + k, {STEPS: {0: float(k % 50)}}))
    window = whole(made)
    assert (window.start, window.end) == (1090.0, 1099.0)
    assert window.get(STEPS) == pytest.approx(1.0)
    assert window.problems == ()


# the newest values


def test_the_newest_value_is_there_while_pages_come() -> None:
    """A counter goes on over a reset as if never reset; a gauge is as read; a source whose pages stopped has no value, not its last."""
    made = store(
        reading(100.0, {STEPS: {0: 50.0, 1: 60.0}}),
        reading(102.0, {STEPS: {0: 70.0, 1: 5.0}}),
        reading(101.0, {RUNNING: {0: 3.0, 1: 0.0}}, source=LOADS),
    )
    assert made.latest(99.0) == {STEPS: {0: 70.0, 1: 65.0}, RUNNING: {0: 3.0, 1: 0.0}}
    assert made.latest(101.5) == {STEPS: {0: 70.0, 1: 65.0}}
    assert made.latest(103.0) == {}


def test_a_rank_that_left_the_page_has_no_newest_value() -> None:
    """It is gone, and not what it was."""
    made = store(reading(100.0, {RUNNING: {0: 1.0, 1: 2.0}}), reading(101.0, {RUNNING: {0: 4.0}}))
    assert made.latest(0.0) == {RUNNING: {0: 4.0}}


def test_the_newest_value_of_a_snapshot_that_stands_is_the_last_one_that_was_new() -> None:
    """A counter from a snapshot that was seen before is not read again, but is still what the rank said last."""
    made = store(*(reading(100.0 + k, {STEPS: {0: 50.0}}, source=LOADS, ages={0: float(k)}) for k in range(4)))
    assert made.latest(0.0) == {STEPS: {0: 50.0}}


def test_of_two_nodes_that_hold_a_rank_the_lower_process_speaks() -> None:
    """As in a window."""
    made = store(
        reading(100.0, {STEPS: {0: 9.0}}, node="http://b:1", speakers={0: 4}),
        reading(100.0, {STEPS: {0: 5.0}}, node="http://a:1", speakers={0: 0}),
    )
    assert made.latest(0.0) == {STEPS: {0: 5.0}}
