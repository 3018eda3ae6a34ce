"""The metadata row of a rank, and what all ranks conclude from the table: CUDA graphs, and decodes that run as extends.

SGLang 0.5.23: a step replays the decode graph only if every rank votes for it, and a rank that extends votes no: so one extending
rank makes every decode of the group run eagerly. With a prefill graph that every rank votes for, the other ranks' decodes are run
as extends of one token instead, inside that graph; not under speculation, not on a split engine, not with an all-to-all for the
experts, and not while a rank is idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workload.exchange import Column
from workload.scheduling.request import Batch
from workload.scheduling.settings import EngineFlags

_EXTEND, _DECODE, _MIXED, _IDLE = 1, 2, 3, 4  # SGLang's ForwardMode


@dataclass(frozen=True, slots=True)
class Agreed:
    """The same on all ranks. `graph`: the step replays a captured graph; `converted`: decodes run as one-token extends in it."""

    graph: bool
    converted: bool
    extending: int  # ranks that asked for an extend: conversion does not count


class GraphVotes:
    """One rank's vote. `allowed` False: it votes against any graph, whatever it runs."""

    def __init__(self, flags: EngineFlags) -> None:
        self.allowed = True
        self._rows = flags.decode_graph_rows
        self._tokens = flags.prefill_graph_tokens
        self._converts = flags.speculation is None and flags.split is None and flags.moe_a2a == "none"

    def row(self, batch: Batch | None) -> list[int]:
        """This rank's row of the metadata exchange."""
        row = [0] * len(Column)
        row[Column.DECODE_GRAPH] = int(self._decode_vote(batch))
        row[Column.PREFILL_GRAPH] = int(self._prefill_vote(batch))
        row[Column.FORWARD_MODE] = _mode(batch)
        if batch is not None:
            row[Column.IS_EXTEND] = int(batch.extends)
            row[Column.NUM_TOKENS] = batch.tokens
            row[Column.NUM_TOKENS_FOR_LOGPROB] = len(batch.requests)
            row[Column.MAX_PREFIX_LEN] = max([batch.max_prefix, *[r.context - 1 for r in batch.decoding]])
            row[Column.ATTENTION_PAIRS] = batch.pairs
        return row

    def _decode_vote(self, batch: Batch | None) -> bool:
        return self.allowed and (batch is None or (not batch.extends and batch.rows <= self._rows))

    def _prefill_vote(self, batch: Batch | None) -> bool:
        if not self.allowed or batch is None or batch.tokens > self._tokens:
            return False
        return batch.extends or self._converts


def agree(table: Sequence[Sequence[int]]) -> Agreed:
    """What the rows of all ranks come to."""
    extending = sum(row[Column.IS_EXTEND] for row in table)
    if not extending:
        return Agreed(all(row[Column.DECODE_GRAPH] for row in table), converted=False, extending=0)
    graph = all(row[Column.PREFILL_GRAPH] for row in table)
    return Agreed(graph, converted=graph and extending < len(table), extending=extending)


def _mode(batch: Batch | None) -> int:
    return _IDLE if batch is None else {"extend": _EXTEND, "mixed": _MIXED, "decode": _DECODE}[batch.mode]
