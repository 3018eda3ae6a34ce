"""The engines that there are now: the configured ones and those of all lists, joined to engines. Owned by one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from collector.model import Problem
from slowrank.discovery.grouping import Told, group
from slowrank.discovery.probe import probe
from slowrank.discovery.shard import ALL, Shard
from slowrank.discovery.sources import Source, watch
from slowrank.discovery.spec import EngineSpec, Found

log = logging.getLogger(__name__)

ASK_AGAIN = 30.0
"""s before a target that did not say what it is, is asked again: an engine takes minutes to load its model."""

FORGET = 600.0
"""s after which a target is asked anew what it is: a restart may have changed it, and ten minutes of two pages cost nothing."""


class Listing:
    """`changed` is called when `engines` may say something else. `ask` is `probe`, or stands in for it. `shard`: others are not ours."""

    def __init__(
        self,
        configured: Sequence[EngineSpec],
        sources: Sequence[Source],
        changed: Callable[[], None],
        ask: Callable[[Iterable[Found]], Awaitable[dict[str, Told]]] = probe,
        shard: Shard = ALL,
    ) -> None:
        self._configured, self._sources, self._changed, self._ask = tuple(configured), tuple(sources), changed, ask
        self._shard = shard
        self._told: dict[str, Told] = {}
        self._asked: dict[str, float] = {}  # URL -> steady seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._probing: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to look at the lists."""
        self._tasks.append(asyncio.create_task(watch(self._sources, self._changed)))

    async def close(self) -> None:
        """End it."""
        for task in (*self._tasks, *([self._probing] if self._probing else [])):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @property
    def looked(self) -> bool:
        """Whether every list was looked at once."""
        return all(source.looked for source in self._sources)

    @property
    def sure(self) -> bool:
        """Whether the lists are whole, so that what is not on them is not there."""
        return self.looked and not any(source.problems for source in self._sources)

    def engines(self) -> tuple[tuple[EngineSpec, ...], tuple[Problem, ...]]:
        """The engines of our shard, each name once, and what is wrong with lists or cannot be told. What targets are is asked in the
        background, of all: whose a target is shows when its engine is known."""
        found = [one for source in self._sources for one in source.found]
        problems = [problem for source in self._sources for problem in source.problems]
        self._wonder(found)
        listed, unclear = group(found, self._told)
        specs: dict[str, EngineSpec] = {}
        for spec in (*self._configured, *listed):
            if spec.name in specs:
                problems.append(
                    Problem(spec.name, f"is listed twice: in {specs[spec.name].origin} and in {spec.origin}", "the first counts")
                )
            else:
                specs[spec.name] = spec
        return tuple(spec for spec in specs.values() if self._shard.has(spec.name)), (*problems, *unclear)

    def _wonder(self, found: Sequence[Found]) -> None:
        """Ask those targets what they are that nobody put into an engine: if there is more than one, they may belong together."""
        loose = {one.url: one for one in found if one.engine is None}
        self._told = {url: told for url, told in self._told.items() if url in loose}
        self._asked = {url: when for url, when in self._asked.items() if url in loose}
        now = time.monotonic()
        due = [one for url, one in loose.items() if now - self._asked.get(url, -FORGET) >= (FORGET if url in self._told else ASK_AGAIN)]
        if len(loose) > 1 and due and (self._probing is None or self._probing.done()):
            self._asked.update(dict.fromkeys((one.url for one in due), now))
            self._probing = asyncio.create_task(self._probe(due))

    async def _probe(self, due: Sequence[Found]) -> None:
        try:
            told = await self._ask(due)
        except Exception:
            log.exception("targets could not be asked what they are, which is a defect of slowrank")
            return
        if any(self._told.get(url) != said for url, said in told.items()):
            self._told |= told
            self._changed()
