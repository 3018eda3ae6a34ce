"""The front end in virtual time: the cluster's own traffic and router, run by an event loop whose clock is the engine's."""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from workload.config import ClusterConfig
from workload.desk import AWAY_SECONDS, Desk
from workload.face.loads import LoadSnapshot
from workload.frontend import Dispatcher, Pinned
from workload.steering import steering
from workload.traffic import Shape
from workload.virtual_time.engine import Engine
from workload.wire import Abort, CardOrder, DeskOrder, Pin, Submit, Unpin


@dataclass(frozen=True, slots=True)
class _Flight:
    """A request on its way."""

    rank: int
    done: Callable[[], None]
    ordinary: bool  # not pinned to its rank by order


class Frontend:
    """Sends requests to ranks and hears of their ends, by the rules of `workload.frontend`.

    Of that one's metrics the pages here show the time to the first token.
    """

    def __init__(self, config: ClusterConfig, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._pinned = Pinned(cast(Dispatcher, self), config.seed)
        self._desk = Desk(config.ranks, config.seed)
        self._steering = steering(config, self._published)
        self._engine = engine
        self._loop = loop
        self._rids = itertools.count()
        self._flights: dict[int, _Flight] = {}

    def send(self, request: Shape, done: Callable[[], None], pinned: int | None = None) -> int:
        """Routes a request; `done` is called when it has finished. Returns its id."""
        now = self._loop.time()
        rid = next(self._rids)
        if pinned is None and self._desk.closed:
            self._loop.call_later(AWAY_SECONDS, done)
            return rid
        rank = self._steering.choose(now, request.prompt, pinned)
        if pinned is None:
            rank = self._desk.place(rank)
            request = self._desk.shape(rank, request)
        self._flights[rid] = _Flight(rank, done, ordinary=pinned is None)
        submit = Submit(rid, request.prompt, request.cached, request.output, request.prefix, request.keeps)
        self._engine.post(rank, submit, now)
        return rid

    def abort(self, rids: list[int]) -> None:
        by_rank: dict[int, list[int]] = {}
        for rid in rids:
            if (flight := self._flights.pop(rid, None)) is not None:
                by_rank.setdefault(flight.rank, []).append(rid)
                self._steering.ended(flight.rank)
        for rank, gone in by_rank.items():
            self._engine.post(rank, Abort(gone), self._loop.time())

    def order(self, order: Pin | Unpin | CardOrder | DeskOrder) -> None:
        """Obeys a fault. What a card's sensors would say is on no page here."""
        if isinstance(order, Pin | Unpin):
            self._pinned.order(order)
        elif isinstance(order, DeskOrder):
            self._desk.obey(order)
            self._engine.held = self._desk.held
            if self._desk.closed and (gone := {rid: flight.done for rid, flight in self._flights.items() if flight.ordinary}):
                self.abort(sorted(gone))
                for done in gone.values():
                    self._loop.call_later(AWAY_SECONDS, done)

    def hear(self) -> None:
        """Passes on which requests have ended."""
        heard, self._engine.heard = self._engine.heard, []
        if self._desk.held:
            self._loop.call_later(self._desk.held, self._end, heard)
        else:
            self._end(heard)

    def _end(self, rids: list[int]) -> None:
        for rid in rids:
            if (flight := self._flights.pop(rid, None)) is not None:
                self._steering.ended(flight.rank)
                flight.done()

    def _published(self) -> list[LoadSnapshot]:
        """What the router reads of every rank."""
        return [
            LoadSnapshot(
                timestamp=p.at,
                dp_rank=p.rank,
                num_running_reqs=p.running,
                num_waiting_reqs=p.waiting,
                num_total_tokens=p.total,
                token_usage=p.used / rank.capacity,
            )
            for rank in self._engine.ranks
            if (p := rank.published) is not None
        ]


class _Selector(selectors.SelectSelector):
    """Waits for nothing: while asyncio would wait, the engine runs."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.engine: Engine | None = None
        self.frontend: Frontend | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.engine is not None and self.frontend is not None and timeout:
            self.now = max(self.now, self.engine.run(self.now + timeout))
            if self.engine.heard:
                self.frontend.hear()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which time passes only as the engine works it off."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Seconds since the start of the simulation."""
        return self._virtual.now

    def play(self, engine: Engine, frontend: Frontend) -> None:
        """Lets the engine run from now on whenever the tasks of this loop wait."""
        self._virtual.engine = engine
        self._virtual.frontend = frontend
