"""Which readings count, of which node, and what is the engine's."""

from __future__ import annotations

import pytest

from collector import signals
from collector.model import Problem
from collector.store import Store
from tests.collector.readings import LOADS, RUNNING, STEPS, reading, said, store, whole


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


def test_problems_of_the_last_readings_are_the_windows() -> None:
    """Each once, and gone when the next page is clean."""
    bad = Problem("http://a:1/metrics", "something odd")
    made = store(*(reading(1000.0 + k, {STEPS: {0: 1.0 * k}}, problems=(bad, bad)) for k in range(3)))
    assert whole(made).problems == (bad,)
    made.feed(reading(1003.0, {STEPS: {0: 3.0}}))
    assert whole(made).problems == ()


def test_of_two_nodes_that_hold_a_rank_the_lower_process_speaks() -> None:
    """As in a window."""
    made = store(
        reading(100.0, {STEPS: {0: 9.0}}, node="http://b:1", speakers={0: 4}),
        reading(100.0, {STEPS: {0: 5.0}}, node="http://a:1", speakers={0: 0}),
    )
    assert made.latest(0.0) == {STEPS: {0: 5.0}}
