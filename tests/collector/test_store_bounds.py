"""The grid of a window, and how much is kept."""

from __future__ import annotations

import numpy as np
import pytest

from collector import grid, signals
from collector.engines.sglang_loads import FIELDS, MOMENTS, SECTION_FIELDS
from collector.engines.sglang_metrics import ROWS
from collector.model import Reading
from collector.ring import Ring
from collector.store import Store
from tests.collector.readings import AGE, LOADS, STEPS, reading, said, store, whole


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
