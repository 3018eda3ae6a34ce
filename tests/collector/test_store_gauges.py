"""Levels in windows, and the newest value of each signal."""

from __future__ import annotations

import numpy as np
import pytest

from collector import signals
from collector.store import Store
from tests.collector.readings import AGE, LOADS, RUNNING, STEPS, reading, store, whole


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
