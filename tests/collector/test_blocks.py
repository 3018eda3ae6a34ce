"""Many readings at once leave a store exactly as the same readings one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import signals
from collector.engines.terms import Term, at_once, over_time
from collector.model import Block, Facts, Problem, Reading, Source
from collector.store import Store

RANKS = (0, 3, 4)
COUNTER, GAUGE, WHOLE = signals.ATTENTION_PAIRS, signals.RUNNING, signals.BALANCEDNESS_SUM
MAYBE = st.one_of(st.just(np.nan), st.floats(0, 1e6, width=32))  # what a ring keeps of a gauge


@st.composite
def blocks(draw):
    """A block of up to 12 pages: values that rise, fall, stand still and are missing; snapshots that are old, or the same again."""
    n = draw(st.integers(1, 12))
    arrived = np.cumsum(draw(st.lists(st.floats(0.5, 40), min_size=n, max_size=n))) + 1e9
    ages = np.array(draw(st.lists(st.one_of(st.just(np.nan), st.floats(0, 20)), min_size=3 * n, max_size=3 * n))).reshape(n, 3)
    tables = [np.array(draw(st.lists(MAYBE, min_size=3 * n, max_size=3 * n))).reshape(n, 3) for _ in range(2)]
    if draw(st.booleans()):
        tables[0] = np.fmax.accumulate(tables[0], axis=0)
    whole = np.array(draw(st.lists(MAYBE, min_size=n, max_size=n)))
    return Block(
        "e",
        "http://a:1",
        Source.SGLANG_METRICS,
        arrived,
        RANKS,
        arrived[:, None] - ages,
        {COUNTER: tables[0], GAUGE: tables[1]},
        {WHOLE: whole},
        Facts(model="m"),
        (Problem("w", "x"),),
        {0: 0, 3: 3},
    )


def one_by_one(block: Block) -> list[Reading]:
    readings = []
    for i, arrived in enumerate(block.arrived):
        there = [k for k in range(len(RANKS)) if np.isfinite(block.times[i, k])]
        values = {name: {RANKS[k]: float(found[i, k]) for k in there if np.isfinite(found[i, k])} for name, found in block.values.items()}
        times = {RANKS[k]: float(block.times[i, k]) for k in there}
        if np.isfinite(block.whole[WHOLE][i]):
            values[WHOLE] = {-1: float(block.whole[WHOLE][i])}
            times[-1] = float(arrived)
        readings.append(
            Reading(block.engine, block.node, block.source, float(arrived), times, values, block.facts, block.problems, block.speakers)
        )
    return readings


@settings(deadline=None)
@given(blocks(), st.integers(0, 12), st.sampled_from([3.0, 300.0]))
def test_a_block_is_its_readings(block: Block, before: int, depth: float) -> None:
    """Windows and problems are equal, whether some of the pages came one by one before, and when the ring wraps."""
    single, mixed = Store("e", "sglang", depth_s=depth), Store("e", "sglang", depth_s=depth)
    for reading in one_by_one(block):
        single.feed(reading)
    for reading in one_by_one(block)[:before]:
        mixed.feed(reading)
    mixed.feed_block(block)
    a, b = single.window(-np.inf, np.inf), mixed.window(-np.inf, np.inf)
    assert a.ranks == b.ranks
    assert set(a.problems) == set(b.problems)  # ranks that come together are told in any order
    assert (a.engine, a.scrapes) == (b.engine, b.scrapes)
    assert np.array_equal(a.edges, b.edges)
    assert set(a.values) == set(b.values)
    for name, found in a.values.items():
        assert np.array_equal(found, b.values[name], equal_nan=True), name


def test_a_sum_over_time_is_the_page_s_sum_at_each_moment() -> None:
    """Series that have not begun or have ended add nothing; a negative, infinite or NaN one leaves nothing; a lost one neither."""
    nan, inf = np.nan, np.inf
    values = np.array([[1.0, 2, 3, 4, 5, 6], [nan, 10, nan, 30, 40, nan], [7, 7, 7, -1, inf, 7]])
    terms = [
        Term("a", 0, (0, 1)),
        Term("b", 0, (0,), (1,), 2.0),
        Term("c", 1, (2,)),
        Term("d", 1, (), zero=True),
        Term("e", 2, (1,), zero=True),
    ]
    found = over_time(terms, values)
    assert np.array_equal(found["a"][0], [1, 12, nan, 34, 45, 6], equal_nan=True)
    assert np.array_equal(found["b"][0], [2, -16, nan, -52, -70, 12], equal_nan=True)
    assert np.array_equal(found["c"][1], [7, 7, 7, nan, nan, 7], equal_nan=True)
    assert np.array_equal(found["d"][1], np.zeros(6))
    assert np.array_equal(found["e"][2], [0, 10, nan, 30, 40, 0], equal_nan=True)
    assert at_once(terms, [3.0, 30.0, 7.0]) == {"a": {0: 33}, "b": {0: -54}, "c": {1: 7}, "d": {1: 0}, "e": {2: 30}}
