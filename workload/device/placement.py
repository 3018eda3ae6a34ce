"""Which card holds which expert: copies of the popular ones, and where each copy goes. Pure.

As in expert-parallel load balancing (EPLB): an expert that has several copies spreads its tokens evenly over them; copies are dealt to
cards heaviest first, each to the least loaded card that has a free slot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def replicas(popularity: FloatArray, redundant: int) -> IntArray:
    """Copies of each expert: one, and `redundant` more in all, each given to the expert whose copies are then the busiest."""
    copies = np.ones(len(popularity), dtype=np.int64)
    for _ in range(redundant):
        copies[int(np.argmax(popularity / copies))] += 1
    return copies


def in_order(copies: IntArray, cards: int) -> FloatArray:
    """Part of each expert's tokens per card: experts in blocks by number, further copies behind them. Shape (experts, cards)."""
    first = np.arange(len(copies))
    more = np.repeat(first, copies - 1)
    slots = np.concatenate([first, more])
    owner = np.repeat(np.arange(cards), _slots(len(slots), cards))
    return _parts(slots, owner, copies, cards)


def balanced(popularity: FloatArray, copies: IntArray, cards: int) -> FloatArray:
    """As `in_order`, but dealt by popularity, with copies of one expert on different cards where slots allow it."""
    slots = np.repeat(np.arange(len(copies)), copies)
    weight = (popularity / copies)[slots]
    order = np.argsort(-weight, kind="stable")
    free = _slots(len(slots), cards)
    load = np.zeros(cards)
    held: list[set[int]] = [set() for _ in range(cards)]
    owner = np.zeros(len(slots), dtype=np.int64)
    for slot in order:
        expert = int(slots[slot])
        open_ = [c for c in range(cards) if free[c]]
        card = min([c for c in open_ if expert not in held[c]] or open_, key=lambda c: load[c])
        owner[slot] = card
        free[card] -= 1
        load[card] += weight[slot]
        held[card].add(expert)
    return _parts(slots, owner, copies, cards)


def _slots(total: int, cards: int) -> IntArray:
    """Slots per card; where they do not divide, the first cards have one more."""
    return np.array([total // cards + (card < total % cards) for card in range(cards)], dtype=np.int64)


def _parts(slots: IntArray, owner: IntArray, copies: IntArray, cards: int) -> FloatArray:
    parts = np.zeros((len(copies), cards))
    np.add.at(parts, (slots, owner), 1.0 / copies[slots])
    return parts
