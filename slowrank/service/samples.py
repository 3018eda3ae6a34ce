"""The state of the service as samples of our own series (`collector.exported`). Pure reading: no clock but the time given."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterable, Iterator
from math import isfinite
from pathlib import Path

from collector import exported, signals
from collector.engines.kinds import PATHS
from collector.exporter import Sample
from collector.model import Engine
from diagnose.model import EngineDiagnosis, Verdict
from slowrank.service.cadence import INFO, METRICS
from slowrank.service.office import Office
from slowrank.service.watch import STALE, Watch

_SIGNALS = exported.of_signals()
_LEVELS = frozenset(name for name in _SIGNALS if signals.CATALOGUE[name].optional)


def of_engine(watch: Watch, now: float) -> Iterator[Sample]:
    """One engine: its signals, its verdict, its reading. `now`: unix seconds."""
    yield from _signals(watch, now)
    yield from _machines(watch, now)
    yield from _reading(watch, now)
    if watch.look is not None:
        yield from _verdict(watch.spec.name, watch.look.diagnosis)
        if watch.up(now):
            yield from _facts(watch.spec.name, watch.look.window.engine)
    engine = watch.spec.name
    yield Sample(exported.DIAGNOSES, watch.diagnoses, (engine,))
    yield Sample(exported.DIAGNOSIS_SECONDS, watch.cpu, (engine,))
    yield Sample(exported.STORE_BYTES, watch.intake.nbytes(engine), (engine,))
    yield Sample(exported.ENGINE_LABELS, 1.0, (engine,), tuple((f"label_{name}", value) for name, value in watch.spec.labels))


def _signals(watch: Watch, now: float) -> Iterator[Sample]:
    """As read, but for counters that stand still while the engine works: it was not told to count them, and they are no zeros."""
    frozen = watch.look.window.frozen if watch.look is not None else {}
    for signal, values in watch.intake.latest(watch.spec.name, now - STALE * watch.cadence[METRICS]).items():
        family = _SIGNALS[signal]
        for rank, value in values.items():
            if rank not in frozen.get(signal, ()) and (signals.CATALOGUE[signal].scope is signals.Scope.RANK) is (rank >= 0):
                labels = (watch.spec.name, str(rank)) if rank >= 0 else (watch.spec.name,)
                yield Sample(family.name, value, labels)


def _machines(watch: Watch, now: float) -> Iterator[Sample]:
    """Levels of the ranks' cards and processes, which only a window joins to ranks. What those count shows in verdicts alone."""
    if watch.look is None or not watch.up(now):
        return
    window = watch.look.window
    for signal, table in window.values.items():
        if signal in _LEVELS and table.shape[1]:
            for rank, value in zip(window.ranks, table[:, -1], strict=True):
                if isfinite(value):
                    yield Sample(_SIGNALS[signal].name, float(value), (watch.spec.name, str(rank)))


def _facts(engine: str, seen: Engine) -> Iterator[Sample]:
    """What a history server is not told by other series: the card above all, which says what attention costs."""
    said = [getattr(seen.facts, name) for name in exported.FACT_LABELS]
    yield Sample(exported.ENGINE_INFO, 1.0, (engine, seen.kind, *(text or "" for text in said)))
    for name, family in exported.FACT_NUMBERS.items():
        if (number := getattr(seen.facts, name)) is not None:
            yield Sample(family, float(number), (engine,))


def _reading(watch: Watch, now: float) -> Iterator[Sample]:
    engine = watch.spec.name
    for (node, source), pages in watch.counts.pages.items():
        where = (engine, node, source)
        for outcome, count in pages.outcomes.items():
            yield Sample(exported.SCRAPES, count, (*where, outcome))
        yield Sample(exported.SCRAPE_SECONDS, pages.seconds, where)
        yield Sample(exported.SCRAPE_BYTES, pages.bytes, where)
        if pages.good is not None:
            yield Sample(exported.PAGE_AGE, now - pages.good, where)
    for source, late in watch.counts.late.items():
        yield Sample(exported.SCRAPE_LATE, late.copy(), (engine, source))
    for asked in watch.cadence:
        if asked is not INFO:
            yield Sample(exported.SCRAPE_INTERVAL, watch.cadence[asked], (engine, PATHS[asked].rpartition("/")[2]))
    yield Sample(exported.ENGINE_UP, float(watch.up(now)), (engine,))


def _verdict(engine: str, found: EngineDiagnosis) -> Iterator[Sample]:
    verdict = found.verdict
    yield Sample(exported.DIAGNOSED_AT, found.end, (engine,))
    yield Sample(exported.VERDICT, 1.0, (engine, verdict.klass.value, verdict.cause or "", verdict.severity.value))
    yield Sample(exported.CONFIDENCE, verdict.confidence, (engine,))
    if found.step_time is not None:
        yield Sample(exported.STEP_SECONDS, found.step_time, (engine,))
    for cause, share in verdict.lost_time.by_cause.items():
        yield Sample(exported.LOST, share, (engine, cause))
    for rank, cause in _culprits(verdict):
        yield Sample(exported.CULPRIT, 1.0, (engine, str(rank), cause))
    for row in found.ranks:
        if row.wait_per_step is not None:
            yield Sample(exported.WAIT, row.wait_per_step, (engine, str(row.rank)))
        if row.lateness is not None:
            yield Sample(exported.LATENESS, row.lateness, (engine, str(row.rank)))


def _culprits(verdict: Verdict) -> Iterable[tuple[int, str]]:
    return dict.fromkeys((rank, v.cause or "") for v in (verdict, *verdict.also) for rank in v.ranks)


def of_rules(watches: Iterable[Watch]) -> Iterator[Sample]:
    """Rules that raised, over all engines."""
    failures: dict[str, int] = {}
    for watch in watches:
        for rule, count in watch.rule_failures.items():
            failures[rule] = failures.get(rule, 0) + count
    for rule, count in failures.items():
        yield Sample(exported.RULE_FAILURES, count, (rule,))


def of_process() -> Iterator[Sample]:
    """This process; where there is no /proc, less of it."""
    yield Sample(exported.TASKS, len(asyncio.all_tasks()))
    statm = Path("/proc/self/statm")
    if statm.exists():
        yield Sample(exported.DESCRIPTORS, len(list(Path("/proc/self/fd").iterdir())))
        yield Sample(exported.RESIDENT_BYTES, int(statm.read_text().split()[1]) * resource.getpagesize())


def of_office(office: Office) -> Iterator[Sample]:
    """Incidents and receivers."""
    live: dict[tuple[str, ...], int] = {}
    for i in office.open_incidents():
        key = (i.engine, i.klass.value, i.cause, i.severity.value, i.state.value)
        live[key] = live.get(key, 0) + 1
    for labels, count in live.items():
        yield Sample(exported.INCIDENT, count, labels)
    for line in office.status():
        yield Sample(exported.OUTBOX, line.pending, (line.receiver,))
        for outcome, count in line.counts.items():
            yield Sample(exported.DELIVERIES, count, (line.receiver, outcome))
