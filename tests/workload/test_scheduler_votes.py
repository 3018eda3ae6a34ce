"""Which steps replay a CUDA graph, and when decodes run as extends: what all ranks conclude from one table."""

from __future__ import annotations

from typing import Any

import pytest

from workload.config import Limits
from workload.exchange import Column
from workload.scheduler import Batch, Request, Scheduler
from workload.scheduling.settings import EngineFlags, Speculation, Split
from workload.scheduling.votes import Agreed, GraphVotes, agree

PREFILL = Batch("extend", 900, 405_450, 0, 0, (), ())


def decode(rows: int) -> Batch:
    return Batch("decode", rows, 1000 * rows, 1000, 0, (), (), rows=rows, row_pairs=1000 * rows)


def group(*batches: Batch | None, **flags: Any) -> Agreed:
    votes = GraphVotes(EngineFlags(**flags))
    return agree([votes.row(batch) for batch in batches])


def test_the_row_says_what_the_rank_runs():
    """11 numbers in SGLang's order, the forward mode as its ForwardMode."""
    votes = GraphVotes(EngineFlags())
    row = votes.row(PREFILL)
    assert (len(row), row[Column.NUM_TOKENS], row[Column.ATTENTION_PAIRS], row[Column.IS_EXTEND]) == (11, 900, 405_450, 1)
    mixed = Batch("mixed", 102, 9000, 50, 0, (), (), rows=2, row_pairs=100)
    assert [votes.row(b)[Column.FORWARD_MODE] for b in (PREFILL, decode(3), mixed, None)] == [1, 2, 3, 4]


def test_the_row_says_how_much_context_there_was():
    """MAX_PREFIX_LEN, of the request that has most: before the chunk that is prefilled, and with the token that a decode computes."""
    votes, scheduler = GraphVotes(EngineFlags(mixed=True)), Scheduler(Limits(chunk_tokens=100), EngineFlags(mixed=True))

    def row() -> int:
        batch = scheduler.next_batch()
        assert batch is not None
        return votes.row(batch)[Column.MAX_PREFIX_LEN]

    scheduler.submit(Request(1, prompt=50, cached=30, output=9))
    assert row() == 30
    assert [row(), row()] == [51, 52]
    scheduler.submit(Request(2, prompt=500, cached=0, output=9))
    assert row() == 53  # the decode beside the first 99 tokens of the prompt
    assert row() == 99


def test_decodes_and_idle_ranks_share_the_decode_graph():
    """A rank without work votes yes."""
    assert group(decode(4), decode(9), None) == Agreed(graph=True, converted=False, extending=0)


def test_one_extending_rank_takes_the_graph_from_all():
    """Without a prefill graph the decodes run eagerly."""
    assert group(decode(4), PREFILL, decode(9)) == Agreed(graph=False, converted=False, extending=1)


def test_a_batch_beyond_the_captured_sizes_takes_the_graph_from_all():
    """Of one rank, by one row."""
    assert group(decode(4), decode(16), decode_graph_rows=16).graph
    assert not group(decode(4), decode(17), decode_graph_rows=16).graph


def test_a_rank_may_vote_against_graphs():
    """Its no counts for everybody, and so does its yes again."""
    yes, no = GraphVotes(EngineFlags()), GraphVotes(EngineFlags())
    no.allowed = False
    assert not agree([yes.row(decode(2)), no.row(decode(2))]).graph
    assert not agree([yes.row(decode(2)), no.row(None)]).graph
    no.allowed = True
    assert agree([yes.row(decode(2)), no.row(decode(2))]).graph


def test_beside_a_prefill_graph_decodes_run_as_extends():
    """They are not counted as extending ranks: modes are exchanged before the conversion."""
    assert group(decode(4), PREFILL, decode(9), prefill_graph_tokens=1024) == Agreed(graph=True, converted=True, extending=1)


def test_when_all_prefill_there_is_nothing_to_convert():
    """All ranks use the prefill graph."""
    assert group(PREFILL, PREFILL, prefill_graph_tokens=1024) == Agreed(graph=True, converted=False, extending=2)


@pytest.mark.parametrize(
    "flags",
    [
        {"prefill_graph_tokens": 899},  # the prefill is too long for it
        {"prefill_graph_tokens": 1024, "moe_a2a": "deepep"},
        {"prefill_graph_tokens": 1024, "speculation": Speculation()},
        {"prefill_graph_tokens": 1024, "split": Split("decode")},
    ],
)
def test_what_forbids_the_conversion(flags: dict[str, Any]):
    """Then the whole group is eager."""
    assert group(decode(4), PREFILL, **flags) == Agreed(graph=False, converted=False, extending=1)


def test_an_idle_rank_forbids_the_conversion():
    """It has nothing to run as an extend."""
    assert group(decode(4), PREFILL, None, prefill_graph_tokens=1024) == Agreed(graph=False, converted=False, extending=1)
