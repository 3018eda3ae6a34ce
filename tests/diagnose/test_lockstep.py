"""Waits to lateness, on the waits measured with the real engine's own exchange functions (docs/signals.md)."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from collector import signals
from collector.model import Engine, Window
from diagnose import lockstep

MEASURED = {
    # late rank: (control broadcast, metadata exchange) in ms per iteration on 4 gloo ranks, one stalled by 20 ms
    0: ((1.5, 22.8, 23.2, 22.9), (4.6, 3.4, 3.0, 3.3)),
    2: ((21.4, 2.1, 1.6, 2.0), (3.8, 23.1, 3.4, 23.2)),
}


def window_of(broadcast: tuple[float, ...], exchange: tuple[float, ...], rate: float = 40.0, seconds: int = 12) -> Window:
    ranks = len(broadcast)

    def rows(values: tuple[float, ...]) -> np.ndarray:
        return np.repeat(np.array(values)[:, None] * 1e-3 * rate, seconds, axis=1)

    steps = np.full((ranks, seconds), rate)
    return Window(
        Engine("e", "sglang"),
        np.arange(seconds + 1, dtype=np.float64),
        tuple(range(ranks)),
        {
            signals.RECV_WAIT: rows(broadcast),
            signals.SYNC_WAIT: rows(exchange),
            signals.STEPS_ACTIVE: steps,
            signals.STEPS_IDLE: steps * 0.0,
        },
        scrapes=seconds,
    )


@pytest.mark.parametrize("late", MEASURED)
def test_the_sum_of_both_waits_names_the_late_rank(late):
    """Broadcast plus exchange is least on the late rank, whichever it is, and it alone is the low cluster."""
    waits = lockstep.waits(window_of(*MEASURED[late]))
    assert waits is not None
    assert waits.late == (late,)
    assert waits.complete
    assert waits.agreement == 1.0
    assert waits.lateness[late] == pytest.approx(waits.lateness.max())


@pytest.mark.parametrize("late", MEASURED)
def test_the_exchange_alone_does_not_name_the_late_rank(late):
    """Without the broadcast's share the late rank does not stand apart: another rank waits as little or less."""
    waits = lockstep.waits(window_of(*MEASURED[late]).without(signals.RECV_WAIT))
    assert waits is not None
    assert not waits.complete
    assert waits.late != (late,)


def test_lost_time_is_the_mean_wait_less_the_least():
    """Host lost time per step = mean W - min W."""
    waits = lockstep.waits(window_of((0.0, 10.0, 10.0, 10.0), (1.0, 1.0, 1.0, 1.0)))
    assert waits is not None
    assert waits.lost == pytest.approx(7.5e-3)
    assert waits.lateness.tolist() == pytest.approx([10e-3, 0.0, 0.0, 0.0])


def test_no_steps_no_waits():
    """A wait per step of a group that took no step is unknown, not zero or infinite."""
    window = window_of((1.0, 2.0), (1.0, 1.0))
    stopped = replace(window, values={**window.values, signals.STEPS_ACTIVE: window.values[signals.STEPS_ACTIVE] * 0.0})
    assert lockstep.waits(stopped) is None
    assert lockstep.cadence(stopped) is None


def test_the_cadence_is_the_ratio_of_the_moments_sums():
    """Step time = sum of launch gaps / number of gaps, the median over ranks, whatever the counters' rates are."""
    window = window_of((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    rates = np.array([[30.0], [30.0], [10.0]]) * np.ones((3, 12))  # rank 2 prefills most of the time and decodes at its own, shorter step
    times = rates * np.array([[0.030], [0.030], [0.020]])
    with_moments = replace(window, values={**window.values, signals.DECODE_STEPS: rates, signals.DECODE_TIME: times})
    assert lockstep.cadence(with_moments) == pytest.approx(0.030)


def test_peers_are_the_others():
    """The peers' median leaves the rank itself out and skips unobserved ranks."""
    values = np.array([1.0, 2.0, 3.0, np.nan, 100.0])
    assert lockstep.peers_median(values).tolist() == [3.0, 3.0, 2.0, 2.5, 2.0]


@given(st.lists(st.one_of(st.just(math.nan), st.integers(0, 4).map(float), st.floats(0, 1e6)), min_size=1, max_size=12))
def test_the_median_of_the_others_is_that_of_the_list_without_one(values):
    """For each rank what the standard library makes of the others that were observed; NaN without any. Equal values among them."""
    found = lockstep.peers_median(np.array(values))
    for rank, one in enumerate(found):
        others = [v for k, v in enumerate(values) if k != rank and not math.isnan(v)]
        assert one == pytest.approx(statistics.median(others)) if others else math.isnan(one)


@given(st.lists(st.one_of(st.just(float("nan")), st.just(float("inf")), st.floats(-1e9, 1e9)), min_size=1, max_size=12))
def test_what_was_not_seen_has_no_part_in_a_summary(values):
    """Mean and median are those of the finite values, by the standard library; the highest is the first of the largest that is no NaN."""
    table, seen = np.array(values), [v for v in values if math.isfinite(v)]
    usual = (statistics.fmean(seen), statistics.median(seen)) if seen else (float("nan"), float("nan"))
    assert (lockstep.average(table), lockstep.median(table)) == pytest.approx(usual, rel=1e-9, abs=1e-5, nan_ok=True)
    known = [v for v in values if not math.isnan(v)]
    if known:
        assert lockstep.highest(table) == values.index(max(known))


@given(arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.one_of(st.just(float("nan")), st.floats(-1e9, 1e9))))
def test_medians_of_columns_are_those_of_what_was_seen_in_each(table):
    """Whether everything was seen or not; NaN for a column in which nothing was."""
    for column, found in zip(table.T, lockstep.nanmedian(table), strict=True):
        seen = column[~np.isnan(column)].tolist()
        assert found == pytest.approx(statistics.median(seen) if seen else float("nan"), nan_ok=True)
