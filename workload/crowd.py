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
                for _ in range(traffic.arrivals.users_per_rank * config.ranks):
                    tasks.create_task(self._user(source, traffic.arrivals))
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

    async def _user(self, source: Source, arrivals: ClosedLoop) -> None:
        requests = source.stream()
        if source.chance(_ANSWERED):
            await self._ask(source.residue(next(requests)))
        while True:
            await asyncio.sleep(source.pause(arrivals.think))
            await self._ask(next(requests))

    async def _ask(self, request: Shape) -> None:
        done = asyncio.Event()
        self._dispatcher.send(request, done.set)
        await done.wait()


def _endless(source: Source) -> Iterator[Iterator[Shape]]:
    while True:
        yield source.conversation()


def _nothing() -> None:
    pass
