"""What can go wrong, or be decided, at the front end's desk: between the users and the router, and on the answers' way back. Pure."""

from __future__ import annotations

import random

import msgspec

from workload.traffic import Shape
from workload.wire import Close, DeskOrder, Drain, Estrange, Hold

AWAY_SECONDS = 1.0  # somebody who is turned away comes back to his thoughts after this long


class Desk:
    """`held` seconds pass before an answer is looked at; while `closed` only pinned requests are let in."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.held = 0.0
        self.closed = False
        self._ranks = ranks
        self._rng = random.Random(seed + 4)
        self._strangers: dict[int, float] = {}
        self._drained: set[int] = set()

    def obey(self, order: DeskOrder) -> None:
        match order:
            case Hold(seconds):
                self.held = seconds
            case Close(closed):
                self.closed = closed
            case Drain(rank, drained):
                (self._drained.add if drained else self._drained.discard)(rank)
            case Estrange(rank, share):
                self._strangers[rank] = share

    def place(self, rank: int) -> int:
        """Where a request goes that the router gave to `rank`: the next rank that is not drained, and `rank` if all are."""
        if not self._drained:
            return rank
        for step in range(self._ranks):
            if (candidate := (rank + step) % self._ranks) not in self._drained:
                return candidate
        return rank

    def shape(self, rank: int, request: Shape) -> Shape:
        """What a request is once it is on `rank`. A stranger's beginning is in another rank's cache, and of no use here."""
        if not self._strangers:
            return request
        share = self._strangers.get(rank, 0.0)
        if share and self._rng.random() < share:
            return msgspec.structs.replace(request, cached=0, prefix=())
        return request
