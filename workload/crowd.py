"""The ordinary traffic as it happens: who waits for whose answer, and when the next request comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from workload.config import ClosedLoop, ClusterConfig, Traffic
from workload.traffic import Shape, Source, replay
from workload.traffic.arrivals import times
from workload.traffic.model import Conversations, Open

_ANSWERED = 0.75  # share of its time that a user waits for an answer: 9-10 s of 12-13 s


class Dispatcher(Protocol):
    def send(self, request: Shape, done: Callable[[], None], pinned: int | None = None) -> int: ...


class Crowd:
    def __init__(self, config: ClusterConfig, dispatcher: Dispatcher) -> None:
        self._config = config
        self._dispatcher = dispatcher

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Begins as tasks of `tasks`; those of a recording end with it."""
        config, traffic = self._config, self._config.traffic
        if config.replay is not None:
            rows = replay.load(Path(config.replay), config.limits.kv_tokens)
            tasks.create_task(self._arrive(tasks, (at for at, _ in rows), (iter((shape,)) for _, shape in rows), 0.0, None))
        elif traffic is not None:
            source = Source(traffic, config.seed)
            if isinstance(traffic.arrivals, ClosedLoop):
                tasks.create_task(self._closed(source, traffic.arrivals))
            else:
                tasks.create_task(self._open(tasks, source, traffic, traffic.arrivals))

    async def _open(self, tasks: asyncio.TaskGroup, source: Source, traffic: Traffic, arrivals: Open) -> None:
        pause = traffic.sharing.pause if isinstance(traffic.sharing, Conversations) else 0.0
        when = times(arrivals, random.Random(self._config.seed + 1))
        await self._arrive(tasks, when, _endless(source), pause, source)

    async def _arrive(
        self, tasks: asyncio.TaskGroup, when: Iterable[float], what: Iterator[Iterator[Shape]], pause: float, source: Source | None
    ) -> None:
        """Begins one of `what` at each of the times: a lone request, or a conversation that goes on by itself."""
        clock = asyncio.get_running_loop().time  # which is not the wall's in virtual time
        start = clock()
        for at, requests in zip(when, what, strict=False):
            await asyncio.sleep(start + at - clock())  # from the start and not from now: a late loop catches up
            first = next(requests)
            if source is None or not first.keeps:
                self._dispatcher.send(first, _nothing)
            else:
                tasks.create_task(self._converse(first, requests, pause, source))

    async def _converse(self, first: Shape, rest: Iterator[Shape], pause: float, source: Source) -> None:
        await self._ask(first)
        for request in rest:
            await asyncio.sleep(source.pause(pause))
            await self._ask(request)

    async def _closed(self, source: Source, arrivals: ClosedLoop) -> None:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for _ in range(arrivals.users_per_rank * self._config.ranks):
            _User(source, arrivals.think, self._dispatcher, failed).begin()
        await failed

    async def _ask(self, request: Shape) -> None:
        done = asyncio.Event()
        self._dispatcher.send(request, done.set)
        await done.wait()


class _User:
    """One user of a closed loop, as callbacks: as a task he would cost the simulator twice as much.

    `failed` gets what went wrong; once it is done he asks no more.
    """

    def __init__(self, source: Source, think: float, dispatcher: Dispatcher, failed: asyncio.Future[None]) -> None:
        self._source = source
        self._requests = source.stream()
        self._mean = think
        self._dispatcher = dispatcher
        self._failed = failed
        self._later = failed.get_loop().call_later

    def begin(self) -> None:
        """In the middle of an answer, or between two of them."""
        if self._source.chance(_ANSWERED):
            self._ask(self._source.residue(next(self._requests)))
        else:
            self._think()

    def _think(self) -> None:
        self._later(self._source.pause(self._mean), self._go_on)

    def _go_on(self) -> None:
        self._ask(next(self._requests))

    def _ask(self, request: Shape) -> None:
        if self._failed.done():
            return
        try:
            self._dispatcher.send(request, self._think)
        except Exception as error:  # noqa: BLE001  # the crowd's task raises it
            self._failed.set_exception(error)


def _endless(source: Source) -> Iterator[Iterator[Shape]]:
    while True:
        yield source.conversation()


def _nothing() -> None:
    pass
