"""False alarms: rank-days of healthy, unevenly loaded engines, diagnosed every ten seconds as a sidecar does, incidents and all.

Nothing is kept on disk: the simulated pages go through the collector as they come, as often as the service asks for them, and the past is
kept by the service's own rule. What is judged begins when there is a past: a service that has run for ten healthy minutes has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from benchmarks.accuracy.judge import BLAMED
from benchmarks.accuracy.observe import DIAGNOSED_EVERY, PAST, READS, SERVICE, WINDOW
from benchmarks.accuracy.plan import RANKS, TEST, Spec, presets
from collector.intake import Intake
from collector.model import Page, Source
from diagnose.engine import diagnose
from diagnose.incident import Kind, Policy, advance
from diagnose.incident_model import State
from diagnose.incident_quiet import Incidents
from diagnose.model import Class, Severity
from slowrank.service.past import Past
from workload import harmless
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.columns import Column
from workload.virtual_time.pages import LOADS_TYPE, METRICS_TYPE, LoadsPage, MetricsPage
from workload.virtual_time.recording import ENGINE, START
from workload.virtual_time.simulate import simulate
from workload.virtual_time.snapshots import Snapshot

SEGMENT = 1800.0  # s that are judged of one run
WARM = 60.0
LEAD = WARM + WINDOW + SERVICE.past_age + DIAGNOSED_EVERY
"""s before them: a past must come and grow old."""
_PAGES_EVERY = READS.metrics_suspected / 2  # s between pages that can be had: what is read falls on these
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
            for turn, at in enumerate(np.arange(LEAD + WARM, LEAD + SEGMENT - _EVENT_LASTS, _EVENT_EVERY)):
                event = events[(turn + n) % len(events)]
                rank = None if event.whole_group else (seed + turn) % RANKS
                schedule.append(Scheduled(event.id, rank, float(at), _EVENT_LASTS, event.severity))
        yield Spec("alarms", "", kinds[n % len(kinds)], seed, tuple(schedule), 0.0, LEAD + SEGMENT)


def watch(spec: Spec) -> Alarms:
    """One half hour, simulated and diagnosed."""
    sidecar = _Sidecar(Alarms(spec.preset))
    simulate(spec.config(), spec.schedule, spec.length, sidecar, metrics_every=_PAGES_EVERY)
    sidecar.alarms.rank_days = sidecar.alarms.windows * DIAGNOSED_EVERY * RANKS / 86_400
    return sidecar.alarms


class _Sidecar:
    """A sink of the simulation that reads its pages as the service does."""

    def __init__(self, alarms: Alarms) -> None:
        self.alarms = alarms
        self._intake = Intake(depth_s=2 * PAST + WARM)
        self._past = Past(SERVICE.past_age)
        self._book: Incidents = ()
        self._next = WARM + WINDOW
        self._due = 0.0  # when the next page of /metrics is asked for

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
        """A page of /metrics, if the service asks for it now."""
        if at >= self._due:
            suspected = any(i.state is State.SUSPECTED and i.severity is not Severity.NOTE for i in self._book)
            self._due = at + (READS.metrics_suspected if suspected else READS.metrics)
            self._feed(Source.SGLANG_METRICS, at, METRICS_TYPE, self._metrics.render(values))

    def _feed(self, source: Source, at: float, kind: str, body: str) -> None:
        self._intake.feed(Page(ENGINE, ENGINE, source, START + at, 0.002, 200, kind, body.encode()))

    def _diagnose(self, now: float) -> None:
        window = self._intake.window(ENGINE, WINDOW, end=now)
        past = self._past.baseline(window.end)
        said = diagnose(window, past)
        self._book, events = advance(self._book, said, Policy())
        self._past.note(
            window,
            healthy=said.verdict.klass is Class.HEALTHY,
            noted=said.verdict.cause is not None and said.verdict.severity is Severity.NOTE,
            open_=frozenset(i.state for i in self._book if i.open and i.severity is not Severity.NOTE),
            reach=lambda seconds: self._intake.window(ENGINE, seconds, end=window.end),
        )
        if past is None:
            return
        verdict, alarms = said.verdict, self.alarms
        alarms.windows += 1
        alarms.said[verdict.klass.value] += 1
        if verdict.klass.value in BLAMED:
            alarms.blamed[str(verdict.cause)] += 1
            if verdict.severity is Severity.PAGE:
                alarms.pages[str(verdict.cause)] += 1
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
