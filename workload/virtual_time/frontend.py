"""The front end in virtual time: the cluster's own traffic and router, run by an event loop whose clock is the engine's."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

import msgspec

from workload.config import ClusterConfig
from workload.face.dcgm import Exporter
from workload.face.loads import LoadSnapshot
from workload.flights import Flights
from workload.frontend import Pinned
from workload.steering import steering
from workload.traffic import Shape
from workload.virtual_time.engine import Engine
from workload.wire import Abort, CardOrder, DeskOrder, Pin, Submit, Unpin

Ts = TypeVarTuple("Ts")


class _Flight(msgspec.Struct, frozen=True):
    """A request on its way."""

    rank: int
    done: Callable[[], None]
    ordinary: bool  # not pinned to its rank by order


class Frontend(Flights[_Flight]):
    """Sends requests to ranks and hears of their ends, by the rules of `workload.frontend`.

    Of that one's metrics the pages here show the time to the first token.
    """

    def __init__(self, config: ClusterConfig, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config)
        self._pinned = Pinned(self, config.seed)
        self._steering = steering(config, self._published)
        self._engine = engine
        self._loop = loop
        self._cards = Exporter(config, 0.0)

    def order(self, order: Pin | Unpin | CardOrder | DeskOrder) -> None:
        """Obeys a fault."""
        if isinstance(order, CardOrder):
            self._cards.order(order, self._loop.time())
        elif isinstance(order, Pin | Unpin):
            self._pinned.order(order)
        elif isinstance(order, DeskOrder):
            super().order(order)
            self._engine.results.held = self._desk.held

    def _choose(self, rid: int, request: Shape, pinned: int | None) -> int:  # noqa: ARG002  # as in `workload.frontend`
        rank = self._steering.choose(self._loop.time(), request.prompt, pinned)
        return rank if pinned is not None else self._desk.place(rank)

    def _take_off(self, rid: int, rank: int, request: Shape, done: Callable[[], None], *, ordinary: bool) -> _Flight:  # noqa: ARG002
        return _Flight(rank, done, ordinary)

    def _post(self, rank: int, message: Submit | Abort) -> None:
        self._engine.post(rank, message, self._loop.time())

    def _aborted(self, flight: _Flight) -> None:
        self._steering.ended(flight.rank)

    def cards_page(self) -> str:
        """What `/dcgm/metrics` would say now: see `workload.face.dcgm`."""
        busy = [(known := rank.published) is not None and known.running > 0 for rank in self._engine.ranks]
        return self._cards.page(self._loop.time(), busy)

    def hear(self) -> None:
        """Passes on which requests have ended."""
        results = self._engine.results
        heard = results.finished.copy()
        results.finished.clear()
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


class _Clock(selectors.SelectSelector):
    """Waits for nothing: where asyncio would wait, the engine runs, and timers are called in their time.

    Most of them only send a request, and need no turn of the event loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.engine: Engine | None = None
        self.frontend: Frontend | None = None
        self._until = 0.0  # the engine may run no further: something else is to be done then
        self._soon = False  # something was given to the event loop to call
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []

    def put(self, timer: asyncio.TimerHandle) -> None:
        """Calls it in its time."""
        when = timer.when()
        heapq.heappush(self._timers, (when, timer))
        self._until = min(self._until, when)

    def stop(self) -> None:
        """Lets the event loop turn."""
        self._until = self.now
        self._soon = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._soon = timeout is not None  # asyncio knows of no timers: it sets a timeout, of zero, only while it has something to call
        if self.engine is not None and self.frontend is not None:
            finished = self.engine.results.finished
            while not self._soon:
                while self._timers[0][1].cancelled():  # the engine need not stop for it
                    heapq.heappop(self._timers)
                self._until = self._timers[0][0]
                # an end of a request only sets timers as a rule: then the engine goes on
                while self.now < self._until:
                    self.now = max(self.now, self.engine.run(self._until))
                    if finished:
                        self.frontend.hear()
                if not self._soon:
                    self._call()
        return []

    def _call(self) -> None:
        """Calls what is due; not what that sets for at once, before which asyncio has its turn."""
        due = []
        while self._timers and self._timers[0][0] <= self.now:
            due.append(heapq.heappop(self._timers)[1])
        for timer in due:
            if not timer.cancelled():
                timer._run()  # noqa: SLF001  # as the event loop does it, which handles what is raised


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which time passes only as the engine works it off."""

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        """Seconds since the start of the simulation."""
        return self._clock.now

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.TimerHandle:
        """As any loop's, but kept by the clock."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._clock.put(timer)
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As any loop's."""
        return self.call_at(self._clock.now + delay, callback, *args, context=context)

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        """As any loop's, and the clock stops for it."""
        self._clock.stop()
        return super().call_soon(callback, *args, context=context)

    def play(self, engine: Engine, frontend: Frontend) -> None:
        """Lets the engine run from now on whenever the tasks of this loop wait."""
        self._clock.engine = engine
        self._clock.frontend = frontend
