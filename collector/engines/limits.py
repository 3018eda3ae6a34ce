"""What an engine file believes of a page: how many ranks there can be, and how ranks are named to a person."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from collector.model import Problem

MAX_RANKS = 4096
"""DP ranks of one engine. An order of magnitude above the largest published layout (EP320), small enough that a hostile page cannot
make us allocate without end."""

SHOWN = 8
"""Ranges of ranks that a message spells out."""

MAX_PROBLEMS = 20
"""Problems told of one page. More than a person reads; a hostile page can cause one per entry."""


def rank_of(label: str) -> int | None:
    """The rank that a label spells, None when it is not a small non-negative integer: labels are never trusted."""
    return _rank(label) if len(label) <= len(str(MAX_RANKS)) else None


@lru_cache(maxsize=2 * MAX_RANKS)
def _rank(label: str) -> int | None:
    rank = int(label) if label.isascii() and label.isdigit() else MAX_RANKS
    return rank if rank < MAX_RANKS else None


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 0, 2-5`: for messages."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    if len(spans) == 1 and spans[0][0] == spans[0][1]:
        return f"rank {spans[0][0]}"
    parts = [str(low) if low == high else f"{low}-{high}" for low, high in spans]
    return "ranks " + ", ".join(parts[:SHOWN]) + (f" and {len(parts) - SHOWN} more ranges" if len(parts) > SHOWN else "")


def few(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each problem once, in order, at most MAX_PROBLEMS of them."""
    distinct = tuple(dict.fromkeys(problems))
    if len(distinct) <= MAX_PROBLEMS:
        return distinct
    rest = Problem(distinct[0].where, f"{len(distinct) - MAX_PROBLEMS + 1} more problems of the same page are not listed")
    return (*distinct[: MAX_PROBLEMS - 1], rest)
