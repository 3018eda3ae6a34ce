"""Counters in windows: rates, resets, interpolation, gaps. Expected values are arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import signals
from tests.collector.readings import LOADS, PAIRS, STEPS, increase, reading, said, store, whole


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
