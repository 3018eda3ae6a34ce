"""What a fault may do to a cluster in virtual time: the handles of `workload.control`, on objects in place of processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, cast

from workload.config import ClusterConfig
from workload.control import Control
from workload.nursery import Nursery
from workload.virtual_time.engine import Engine
from workload.virtual_time.frontend import Frontend


class VirtualControl(Control):
    """Every handle of `Control` that sends a message or a signal works as it is; only those that use a thread are done anew."""

    def __init__(self, config: ClusterConfig, engine: Engine, frontend: Frontend, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config, cast(Nursery, _Desk(engine, frontend, loop)))
        self._engine = engine
        self._loop = loop

    def starve(self, rank: int, share: float, period: float) -> Callable[[], None]:
        processor = self._engine.ranks[rank].processor
        theft = processor.starve(self._loop.time(), share, period * self.config.slowdown)
        self._engine.disturb()
        return lambda: processor.feed(theft, self._loop.time())

    def every(self, period: float, act: Callable[[int], None]) -> Callable[[], None]:
        start = self._loop.time()
        coming: list[asyncio.TimerHandle] = []

        def run(turn: int) -> None:
            act(turn)
            coming[:] = [self._loop.call_at(start + (turn + 1) * period, run, turn + 1)]

        run(0)
        return lambda: coming[0].cancel()  # noqa: PLW0108  # the one that is next by then


class _Desk:
    """Takes what a nursery would pass on to a process."""

    def __init__(self, engine: Engine, frontend: Frontend, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._frontend = frontend
        self._loop = loop

    def signal(self, name: str, number: int) -> None:
        processor = self._engine.ranks[int(name.removeprefix("rank"))].processor
        if number == signal.SIGSTOP:
            processor.stop(self._loop.time())
        elif number == signal.SIGCONT:
            processor.resume(self._loop.time())
        else:
            raise ValueError(f"{signal.Signals(number).name} to {name}: in virtual time there are only SIGSTOP and SIGCONT")
        self._engine.disturb()

    def send(self, name: str, message: Any) -> None:
        if name == "fabric":
            self._engine.cards.order(message)
        elif name == "frontend":
            self._frontend.order(message)
        else:
            self._engine.post(int(name.removeprefix("rank")), message, self._loop.time())
