"""Pages in, windows out: the one path of a live scrape and of a replayed capture. No clock and no IO.

`Intake.feed` is the one place where a page that cannot be read is contained: it becomes a Problem of its node and source, and the other
pages go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from collector.engines import sglang
from collector.errors import ConfigError, SourceError
from collector.hardware.shelf import SOURCES, Shelf
from collector.model import Page, Problem, Reading, Source, Window
from collector.store import Store

MAX_PROBLEMS = 40
"""Problems a window carries; more than a person reads."""


class _Reader(Protocol):
    def read(self, page: Page) -> Reading: ...


READERS = {"sglang": sglang.Reader}
ADJUST = {"sglang": sglang.adjust}


@dataclass(slots=True)
class _Engine:
    reader: _Reader
    store: Store
    machines: Shelf
    failures: dict[tuple[str, Source], tuple[float, Problem]] = field(default_factory=dict)  # newest of each node and source, with its time
    newest: float = -np.inf  # arrival of the newest page, failed ones included


class Intake:
    """The last `depth_s` seconds of every engine whose pages were fed, kept per engine id.

    `scrapes` counts the pages that were read, `failures` those that could not be. `gpus`: which cards are a rank's, by the user's word
    (`collector.hardware.join.parse_gpus`). Raises ConfigError for an unknown kind of engine.
    """

    def __init__(self, kind: str = "sglang", *, depth_s: float = 300.0, gpus: Mapping[int, tuple[str, ...]] | None = None) -> None:
        if kind not in READERS:
            raise ConfigError(f"{kind!r} is not a kind of engine that can be read; known: {', '.join(sorted(READERS))}")
        self.kind = kind
        self.scrapes = 0
        self.failures = 0
        self._depth_s = depth_s
        self._gpus = gpus
        self._engines: dict[str, _Engine] = {}
        self._notes: list[Problem] = []

    def feed(self, page: Page) -> None:
        """Take one page, in order of arrival for each node and source. Never raises for what a page holds."""
        engine = self._engines.get(page.engine)
        if engine is None:
            store = Store(page.engine, self.kind, depth_s=self._depth_s)
            machines = Shelf(self.kind, depth_s=self._depth_s, asked=self._gpus)
            engine = self._engines[page.engine] = _Engine(READERS[self.kind](), store, machines)
        engine.newest = max(engine.newest, page.arrived)
        key = (page.node, page.source)
        try:
            if page.source in SOURCES:
                engine.machines.feed(page)
            else:
                engine.store.feed(engine.reader.read(page))
        except SourceError as error:
            self.failures += 1
            engine.failures[key] = page.arrived, Problem(page.source.value, str(error))
        else:
            self.scrapes += 1
            engine.failures.pop(key, None)

    def note(self, problem: Problem) -> None:
        """A problem of the whole intake, such as a capture that is cut off; every window carries it."""
        self._notes.append(problem)

    def engines(self) -> tuple[str, ...]:
        """Ids of the engines of which a page was fed, readable or not, in order of appearance."""
        return tuple(self._engines)

    def window(self, engine: str, seconds: float | None = None, end: float | None = None) -> Window:
        """The last `seconds` (None: `depth_s`) before `end` (None: the newest page) of an engine, ready for diagnosis.

        When no page could be read, a window without ranks and intervals whose problems say why. A failure is told until its page works
        again, or, for a page that is asked for once, until it is `depth_s` old. Raises ConfigError for an id of which no page was ever fed.
        """
        known = self._engines.get(engine)
        if known is None:
            listed = ", ".join(self._engines) or "none"
            raise ConfigError(f"no page of the engine {engine!r} was ever fetched; fetched so far: {listed}")
        until = known.newest if end is None else end
        window = ADJUST[self.kind](known.store.window(until - (self._depth_s if seconds is None else seconds), until))
        window = known.machines.joined(window)
        failures = (problem for when, problem in known.failures.values() if when > until - self._depth_s)
        problems = dict.fromkeys((*self._notes, *failures, *window.problems))
        return replace(window, problems=tuple(problems)[:MAX_PROBLEMS])
