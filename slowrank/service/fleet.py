"""All engines under watch: those that are listed are watched, those that vanish are let go after a while, those that break start anew."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import structlog

from collector.model import Window
from slowrank.discovery.spec import EngineSpec
from slowrank.service.watch import Watch

log = structlog.get_logger(__name__)

GONE_AFTER = 60.0
"""s that an engine may be missing from its list before its incidents end: lists that are written anew lose entries for a moment, and an
end that was not one pages twice. Two questions at the default of an http list."""

AGAIN_AFTER = 10.0
"""s before a watch that broke is begun anew: a defect that repeats costs a traceback each 10 s and no more."""

FRESH = 60.0
"""s for which a window may stand in as a twin's: longer than any window lags, shorter than traffic changes."""


@dataclass(slots=True)
class _Running:
    watch: Watch
    task: asyncio.Task[None]


@dataclass(slots=True)
class Fleet:
    """`make` makes a watch, `left` is told of an engine that is watched no longer. `steady`: seconds that only go forward."""

    make: Callable[[EngineSpec], Watch]
    left: Callable[[str], None]
    steady: Callable[[], float] = time.monotonic
    breakages: dict[str, int] = field(default_factory=dict)  # engine -> how often its watch broke
    _running: dict[str, _Running] = field(default_factory=dict)
    _absent: dict[str, float] = field(default_factory=dict)  # engine -> since when, steady seconds

    @property
    def watches(self) -> tuple[Watch, ...]:
        """All of them, by name."""
        return tuple(running.watch for _, running in sorted(self._running.items()))

    def find(self, name: str) -> Watch | None:
        """The watch of an engine."""
        running = self._running.get(name)
        return None if running is None else running.watch

    def windows(self) -> Sequence[Window]:
        """The newest windows of all engines, of which one may be another's twin."""
        looks = [running.watch.look for running in self._running.values()]
        newest = max((look.window.end for look in looks if look is not None), default=0.0)
        return [look.window for look in looks if look is not None and look.window.end > newest - FRESH]

    async def reconcile(self, specs: Collection[EngineSpec], known: Collection[str], *, sure: bool) -> None:
        """Watch what is listed. `known`: engines with open incidents, which may have been let go before this process began. `sure`: the
        lists are whole; else nothing is let go."""
        wanted = {spec.name: spec for spec in specs}
        for name, spec in wanted.items():
            self._absent.pop(name, None)
            running = self._running.get(name)
            if running is not None and running.watch.spec != spec:
                log.info("engine is configured anew", engine=name)
                await self._stop(name)
                running = None
            if running is None:
                self._start(spec)
        now = self.steady()
        for name in sorted({*self._running, *known} - wanted.keys()):
            since = self._absent.setdefault(name, now)
            if sure and now - since >= GONE_AFTER:
                await self._stop(name)
                del self._absent[name]
                self.left(name)
                log.info("engine is watched no longer", engine=name)
        self._absent = {name: since for name, since in self._absent.items() if name in self._running or name in known}

    async def restart(self) -> None:
        """Begin all watches anew, as their settings have changed."""
        specs = [running.watch.spec for running in self._running.values()]
        for spec in specs:
            await self._stop(spec.name)
            self._start(spec)

    async def close(self) -> None:
        """End all watches."""
        for name in tuple(self._running):
            await self._stop(name)

    def _start(self, spec: EngineSpec) -> None:
        watch = self.make(spec)
        log.info("engine is watched", engine=spec.name, nodes=len(spec.nodes), origin=spec.origin)
        self._running[spec.name] = _Running(watch, asyncio.create_task(self._keep(watch)))

    async def _stop(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            running.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running.task

    async def _keep(self, watch: Watch) -> None:
        """Run a watch for as long as it is wanted: the one place where its defects are contained."""
        while True:
            try:
                await watch.run()
            except Exception:
                name = watch.spec.name
                self.breakages[name] = self.breakages.get(name, 0) + 1
                log.exception("the watch of an engine broke, which is a defect of slowrank; it begins anew", engine=name)
            await asyncio.sleep(AGAIN_AFTER)
