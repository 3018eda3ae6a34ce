"""Requests on their way: what every front end does with them, whoever's face it wears and whatever its clock is."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from workload.config import ClusterConfig
from workload.desk import AWAY_SECONDS, Desk
from workload.traffic import Shape
from workload.wire import Abort, DeskOrder, Submit


class Flight(Protocol):
    """A request on its way to `rank` and back. `ordinary`: not pinned to its rank by order."""

    @property
    def rank(self) -> int: ...
    @property
    def done(self) -> Callable[[], None]: ...
    @property
    def ordinary(self) -> bool: ...


F = TypeVar("F", bound=Flight)


class Flights(ABC, Generic[F]):
    """Sends requests past the desk to the ranks. A front end adds who deals them, what it notes about each, and how it hears of them."""

    def __init__(self, config: ClusterConfig) -> None:
        self._desk = Desk(config.ranks, config.seed)
        self._rids = itertools.count()
        self._flights: dict[int, F] = {}

    def send(self, request: Shape, done: Callable[[], None], pinned: int | None = None) -> int:
        """Routes a request; `done` is called when it has finished. Returns its id."""
        rid = next(self._rids)
        if pinned is None and self._desk.closed:
            asyncio.get_running_loop().call_later(AWAY_SECONDS, done)
            return rid
        rank = self._choose(rid, request, pinned)
        if pinned is None:
            request = self._desk.shape(rank, request)
        self._flights[rid] = self._take_off(rid, rank, request, done, ordinary=pinned is None)
        self._post(rank, Submit(rid, request.prompt, request.cached, request.output, request.prefix, request.keeps))
        return rid

    def abort(self, rids: list[int]) -> None:
        """Forgets those that are still on their way."""
        by_rank: dict[int, list[int]] = {}
        for rid in rids:
            if (flight := self._flights.pop(rid, None)) is not None:
                by_rank.setdefault(flight.rank, []).append(rid)
                self._aborted(flight)
        for rank, gone in by_rank.items():
            self._post(rank, Abort(gone))

    def order(self, order: DeskOrder) -> None:
        """Obeys what faults ask of the desk. A desk that closes turns away what is under way, too."""
        self._desk.obey(order)
        if self._desk.closed and (gone := {rid: flight.done for rid, flight in self._flights.items() if flight.ordinary}):
            self.abort(sorted(gone))
            for done in gone.values():
                asyncio.get_running_loop().call_later(AWAY_SECONDS, done)

    @abstractmethod
    def _choose(self, rid: int, request: Shape, pinned: int | None) -> int:
        """The rank it goes to; `pinned` where that is told, and past the drained ones where it is not."""

    @abstractmethod
    def _take_off(self, rid: int, rank: int, request: Shape, done: Callable[[], None], *, ordinary: bool) -> F:
        """What is noted about a request that goes out now."""

    @abstractmethod
    def _post(self, rank: int, message: Submit | Abort) -> None:
        """Sends it to the rank's process."""

    @abstractmethod
    def _aborted(self, flight: F) -> None:
        """Tells whoever counts requests that this one is no more."""
