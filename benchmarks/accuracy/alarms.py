"""False alarms: rank-days of healthy, unevenly loaded engines, diagnosed every ten seconds as a sidecar does, incidents and all.

Nothing is kept on disk: the simulated pages go through the collector as they come. The past is the half minute after the warm-up of each
half hour, which is harsher than a past that follows the load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.accuracy.judge import BLAMED
from benchmarks.accuracy.observe import DIAGNOSED_EVERY, PAST, WINDOW
from benchmarks.accuracy.plan import RANKS, TEST, Spec, presets
from benchmarks.accuracy.runs import METRICS_EVERY
from collector.intake import Intake
from collector.model import Page, Source, Window
from diagnose.engine import diagnose
from diagnose.incident import Kind, Policy, advance
from diagnose.incident_quiet import Incidents
from diagnose.model import Severity
from workload import harmless
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.columns import Column
from workload.virtual_time.pages import LOADS_TYPE, METRICS_TYPE, LoadsPage, MetricsPage
from workload.virtual_time.recording import ENGINE, START
from workload.virtual_time.simulate import simulate
from workload.virtual_time.snapshots import Snapshot

SEGMENT = 1800.0  # s of one run
WARM = 60.0
_EVENT_EVERY = 300.0  # s between harmless events
_EVENT_LASTS = 60.0


@dataclass(slots=True)
class Alarms:
    """What healthy load was blamed for, by cause. `pages` are verdicts at page severity, `confirmed_pages` incidents that woke somebody."""

    preset: str
    rank_days: float = 0.0
    windows: int = 0
    blamed: Counter[str] = field(default_factory=Counter)
    pages: Counter[str] = field(default_factory=Counter)
    confirmed: Counter[str] = field(default_factory=Counter)
    confirmed_pages: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)  # class of every verdict


def segments(rank_days: float) -> Iterator[Spec]:
    """Half hours that make up so many rank-days: each kind of traffic in turn, plain and with harmless events in turn."""
    events, kinds = list(harmless.load().values()), presets()
    count = max(1, round(rank_days * 86_400 / (SEGMENT * RANKS)))
    for n in range(count):
        seed = TEST + n
        schedule = []
        if (n // len(kinds)) % 2:
            for turn, at in enumerate(np.arange(2 * WARM + PAST, SEGMENT - _EVENT_LASTS, _EVENT_EVERY)):
                event = events[(turn + n) % len(events)]
                rank = None if event.whole_group else (seed + turn) % RANKS
                schedule.append(Scheduled(event.id, rank, float(at), _EVENT_LASTS, event.severity))
        yield Spec("alarms", "", kinds[n % len(kinds)], seed, tuple(schedule), 0.0, SEGMENT)


def watch(spec: Spec) -> Alarms:
    """One half hour, simulated and diagnosed."""
    sidecar = _Sidecar(Alarms(spec.preset))
    simulate(spec.config(), spec.schedule, spec.length, sidecar, metrics_every=METRICS_EVERY)
    sidecar.alarms.rank_days = spec.length * RANKS / 86_400
    return sidecar.alarms


class _Sidecar:
    """A sink of the simulation that reads its pages as slowrank does."""

    def __init__(self, alarms: Alarms) -> None:
        self.alarms = alarms
        self._intake = Intake(depth_s=2 * PAST + WARM)
        self._past: Window | None = None
        self._book: Incidents = ()
        self._next = WARM + PAST

    def open(self, config: ClusterConfig, columns: list[Column]) -> None:
        """Before the first page."""
        self._loads = LoadsPage(config, START)
        self._metrics = MetricsPage(config, columns)

    def loads(self, at: float, snapshots: list[Snapshot]) -> None:
        """A page of /v1/loads; the diagnosis is due on these."""
        self._feed(Source.SGLANG_LOADS, at, LOADS_TYPE, self._loads.render(at, snapshots))
        if at >= self._next:
            self._next += DIAGNOSED_EVERY
            self._diagnose(START + at)

    def metrics(self, at: float, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
        """A page of /metrics."""
        self._feed(Source.SGLANG_METRICS, at, METRICS_TYPE, self._metrics.render(values))

    def _feed(self, source: Source, at: float, kind: str, body: str) -> None:
        self._intake.feed(Page(ENGINE, ENGINE, source, START + at, 0.002, 200, kind, body.encode()))

    def _diagnose(self, now: float) -> None:
        if self._past is None:
            self._past = self._intake.window(ENGINE, PAST, end=now)
            return
        said = diagnose(self._intake.window(ENGINE, WINDOW, end=now), self._past)
        verdict, alarms = said.verdict, self.alarms
        alarms.windows += 1
        alarms.said[verdict.klass.value] += 1
        if verdict.klass.value in BLAMED:
            alarms.blamed[str(verdict.cause)] += 1
            if verdict.severity is Severity.PAGE:
                alarms.pages[str(verdict.cause)] += 1
        self._book, events = advance(self._book, said, Policy())
        for event in events:
            if event.kind is Kind.CONFIRMED:
                incident = next(i for i in self._book if i.id == event.incident)
                alarms.confirmed[incident.cause] += 1
                if incident.severity is Severity.PAGE:
                    alarms.confirmed_pages[incident.cause] += 1


def total(parts: list[Alarms]) -> Alarms:
    """All of them together."""
    out = Alarms("all")
    for part in parts:
        out.rank_days += part.rank_days
        out.windows += part.windows
        for name in ("blamed", "pages", "confirmed", "confirmed_pages", "said"):
            getattr(out, name).update(getattr(part, name))
    return out
