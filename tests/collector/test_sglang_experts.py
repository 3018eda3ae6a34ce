"""Experts on SGLang's /metrics: balancedness, and which card holds the load."""

from __future__ import annotations

import re

import pytest

from collector import signals
from collector.engines import sglang
from tests.collector.sglang_pages import CAPTURES, T1, TP4, capture, read, said


def test_balancedness_is_the_engines() -> None:
    """50 observations of .71, printed once for the whole engine: rank -1."""
    reading = sglang.read(capture(T1))
    assert dict(reading.values[signals.BALANCEDNESS_SUM]) == pytest.approx({-1: 35.5})
    assert dict(reading.values[signals.BALANCEDNESS_COUNT]) == {-1: 50.0}


def test_expert_load_is_the_difference_of_neighbouring_buckets() -> None:
    """Bucket index = EP rank: the driver put 100 (g + 1) tokens on EP rank g in each of two layers."""
    reading = sglang.read(capture(T1))
    assert dict(reading.values[signals.EXPERT_LOAD]) == {rank: 200.0 * (rank + 1) for rank in range(8)}


def test_expert_load_is_absent_where_a_dp_rank_spans_two_ep_ranks() -> None:
    """tp 4, dp 2, ep 4: no number can be given per DP rank, and the page's problems say so."""
    reading = sglang.read(capture(TP4))
    assert signals.EXPERT_LOAD not in reading.values
    assert "spans several EP ranks" in said(reading)


def test_expert_load_of_ranks_on_other_nodes_follows_the_aligned_layout() -> None:
    """World rank 0 counts for all EP ranks; the other node's ranks are on its own page, but the labels prove one card per rank."""
    first_node = "\n".join(line for line in (CAPTURES / T1).read_text().splitlines() if not re.search(r'dp_rank="[4-7]"', line)) + "\n"
    reading = read(first_node)
    assert set(reading.values[signals.STEPS_ACTIVE]) == {0, 1, 2, 3}
    assert dict(reading.values[signals.EXPERT_LOAD]) == {rank: 200.0 * (rank + 1) for rank in range(8)}


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda s: s.replace('moe_ep_rank="3"', 'moe_ep_rank="2"'), "share an EP rank"),
        (lambda s: re.sub(r'moe_ep_rank="\d"', 'moe_ep_rank=""', s), "no series carries"),
        (lambda s: s.replace('le="3.0"} 1000.0', 'le="3.0"} 10.0'), "do not count up"),
        (lambda s: s.replace('layer="3",le="3.0"', 'layer="3",le="x"'), "do not count up"),
    ],
)
def test_expert_load_without_a_sure_mapping_is_absent(edit: object, why: str) -> None:
    """Whatever makes the mapping or the buckets doubtful costs this signal only, and is said."""
    assert callable(edit)
    reading = read(edit((CAPTURES / T1).read_text()))
    assert signals.EXPERT_LOAD not in reading.values
    assert why in said(reading)
    assert len(reading.values[signals.STEPS_ACTIVE]) == 8
