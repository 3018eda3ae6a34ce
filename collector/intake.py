"""Pages in, windows out: the one path of a live scrape and of a replayed capture. No clock and no IO.

`Intake.feed` is the one place where a page that cannot be read is contained: it becomes a Problem of its node and source, and the other
pages go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from collector.engines.kinds import ADJUST, PATHS, READERS, Reader, kind_of
from collector.errors import ConfigError, SourceError
from collector.hardware.shelf import SOURCES, Shelf
from collector.model import Clock, Page, Problem, Reading, Source, Window
from collector.roles import Roles
from collector.store import Store

METRICS = "/metrics"
"""The one path that every kind of engine has."""

MAX_PROBLEMS = 40
"""Problems a window carries; more than a person reads."""


UNTOLD = "sglang"
"""The kind of an engine of which no page was read."""


@dataclass(slots=True)
class _Engine:
    store: Store
    machines: Shelf
    kind: str | None = None  # of the first page that was read
    reader: Reader | None = None
    failures: dict[tuple[str, str], tuple[str | None, float, Problem]] = field(default_factory=dict)  # node, path -> kind, time; the newest
    newest: float = -np.inf  # arrival of the newest page, failed ones included
    roles: Roles = field(default_factory=Roles)
    turned: tuple[float, Problem] | None = None  # when the engine last turned out to have another role

    def fed_as(self, kind: str) -> None:
        """What was read is of such an engine. Raises SourceError when it was another one until now."""
        if self.kind is None:
            self.kind = self.store.kind = self.machines.kind = kind
        elif kind != self.kind:
            what = f"a page of {kind} under a target whose other pages are of {self.kind}"
            raise SourceError(f"{what}; give each engine as a target of its own")


class Intake:
    """The last `depth_s` seconds of every engine whose pages were fed, kept per engine id.

    `scrapes` counts the pages that were read, `failures` those that could not be. What kind of engine it is, the pages say.
    `clock`: what a person says that the ranks of engines share, whose pages do not tell it for certain (vLLM's). `gpus`: which cards are a
    rank's, by the user's word (`collector.hardware.join.parse_gpus`).
    """

    def __init__(self, *, depth_s: float = 300.0, clock: Clock | None = None, gpus: Mapping[int, tuple[str, ...]] | None = None) -> None:
        self._clock = clock
        self.scrapes = 0
        self.failures = 0
        self._depth_s = depth_s
        self._gpus = gpus
        self._engines: dict[str, _Engine] = {}
        self._notes: list[Problem] = []

    def feed(self, page: Page) -> None:
        """Take one page, in order of arrival for each node and source. Never raises for what a page holds."""
        engine = self._engine(page.engine)
        engine.newest = max(engine.newest, page.arrived)
        kind = None if page.source in SOURCES else kind_of(page.source)
        key = (page.node, PATHS.get(page.source, page.source.value))
        try:
            if page.source in SOURCES:
                engine.machines.feed(page)
            else:
                self._read(engine, page)
        except SourceError as error:
            self.failures += 1
            engine.failures[key] = kind, page.arrived, Problem(page.source.value, str(error))
        else:
            self.scrapes += 1
            engine.failures.pop(key, None)

    def _read(self, engine: _Engine, page: Page) -> None:
        """A page of the engine itself, to its store. Raises SourceError for one that cannot be read."""
        if page.source not in PATHS:
            raise SourceError(f"{page.source.value} is no page that an engine serves; give a log with --log")
        kind = kind_of(page.source)
        reader = engine.reader if engine.reader is not None and engine.kind == kind else READERS[kind]()
        reading = reader.read(page)
        if page.source is not Source.SGLANG_SERVER_INFO:
            engine.fed_as(kind)
        elif engine.kind not in {None, kind}:
            return  # vLLM in development mode has a page of that name, which says other things
        before = engine.roles.role
        if engine.roles.admit(page, reading.facts.role):
            what = f"it was a {before} server and is a {engine.roles.role} one: what was read before was put aside"
            engine.turned = page.arrived, Problem(page.node, what, "if two engines answer at one URL, give each its own")
            engine.store = Store(page.engine, kind, depth_s=self._depth_s)
        engine.reader = reader
        engine.store.feed(reading)

    def take(self, reading: Reading) -> None:
        """Take what was read elsewhere than from a page, such as a log, in order of its times for each node and source. Raises SourceError
        when it is of another kind of engine than what came before."""
        engine = self._engine(reading.engine)
        engine.fed_as(kind_of(reading.source))
        engine.newest = max(engine.newest, reading.arrived)
        engine.store.feed(reading)
        self.scrapes += 1

    def _engine(self, name: str) -> _Engine:
        engine = self._engines.get(name)
        if engine is None:
            engine = self._engines[name] = _Engine(
                Store(name, UNTOLD, depth_s=self._depth_s), Shelf(UNTOLD, depth_s=self._depth_s, asked=self._gpus)
            )
        return engine

    def note(self, problem: Problem) -> None:
        """A problem of the whole intake, such as a capture that is cut off; every window carries it."""
        self._notes.append(problem)

    def engines(self) -> tuple[str, ...]:
        """Ids of the engines of which a page was fed, readable or not, in order of appearance."""
        return tuple(self._engines)

    def latest(self, engine: str, since: float) -> dict[str, dict[int, float]]:
        """The newest value of each signal on each rank, as `Store.latest`; nothing for an engine of which no page was fed."""
        known = self._engines.get(engine)
        return {} if known is None else known.store.latest(since)

    def nbytes(self, engine: str) -> int:
        """Bytes that an engine's last minutes take."""
        known = self._engines.get(engine)
        return 0 if known is None else known.store.nbytes

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
        raw = known.store.window(until - (self._depth_s if seconds is None else seconds), until)
        if self._clock is not None:
            raw = replace(raw, engine=replace(raw.engine, facts=replace(raw.engine.facts, clock=self._clock)))
        window = known.machines.joined(ADJUST[known.kind or UNTOLD](raw))
        told = ((path, *failure) for (_, path), failure in known.failures.items())
        # that vLLM has no /v1/loads is no problem; that a node gives no /metrics is one, whatever it was asked as
        own = ((when, problem) for path, kind, when, problem in told if path == METRICS or None in {kind, known.kind} or kind == known.kind)
        failures = (problem for when, problem in (*own, *([known.turned] if known.turned else ())) if when > until - self._depth_s)
        problems = dict.fromkeys((*self._notes, *failures, *window.problems))
        return replace(window, problems=tuple(problems)[:MAX_PROBLEMS])
