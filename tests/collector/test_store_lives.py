"""Ranks and sources that come, go, or were never seen."""

from __future__ import annotations

import numpy as np
import pytest

from collector.model import Facts, Reading
from collector.store import Store
from tests.collector.readings import INFO, LOADS, RUNNING, STEPS, reading, said, store, whole


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
