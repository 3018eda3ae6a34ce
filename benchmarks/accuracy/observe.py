"""What slowrank says of a capture: the diagnosing half, which is given pages and moments and knows no label.

Who counts is `slowrank serve` with its defaults: the window that it looks at, from five seconds after the moment on, pages as often as it
asks for them, and the past that it keeps. That past ends at the moment here and ten minutes before it in the service; no traffic of these
runs moves within ten minutes but at random. Beside it stands a look of ten seconds with a page every two, as of somebody who reads an
engine live and has recorded half a minute of it before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.accuracy.ablate import ABLATIONS, EVERY, METRICS, SLOW_WINDOW, metrics_each, thinned
from benchmarks.accuracy.effect import Facts, facts, moved
from collector.intake import Intake
from collector.model import Page, Window
from diagnose.confidence import calibrated, told
from diagnose.engine import diagnose
from diagnose.incident import Kind, Policy, advance
from diagnose.incident_model import State
from diagnose.incident_quiet import Incidents
from diagnose.model import EngineDiagnosis, Severity
from slowrank.config.model import Diagnosis, Scrape
from slowrank.service.past import REACH

SERVICE, READS = Diagnosis(), Scrape()
WINDOW, PAST, DIAGNOSED_EVERY = SERVICE.window, REACH, SERVICE.every
SETTLE = 5.0
BRIEF, BRIEF_PAST, BRIEF_READS = 10.0, 30.0, 2.0
"""s of a live look at an engine, of its past, and between its metrics pages."""


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict in plain values. `raw` is the confidence before calibration; `also` holds (class, cause, ranks) of further causes."""

    klass: str
    cause: str | None
    ranks: tuple[int, ...]
    raw: float
    confidence: float
    severity: str
    also: tuple[tuple[str, str | None, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What is asked of a capture. Seconds are after the first page; `moment` is where to look from."""

    moment: float
    length: float
    has_past: bool = True
    usual: Facts | None = None  # of the same engine without the fault, from SETTLE after the moment on
    polls: bool = False  # every second from the moment on, and at a slow scrape's pace
    incidents: bool = False
    ablate: bool = False
    remove: bool = False  # each signal by itself


@dataclass(frozen=True, slots=True)
class Observed:
    """`rise`: how many times as long a step is as in the same engine without the fault (inf: no steps; NaN: not known); `moved` the
    largest share by which any figure of `effect` differs from there.

    Times are seconds after the moment."""

    main: Said
    rise: float
    signals: frozenset[str]
    moved: float = math.nan
    brief: Said | None = None
    no_past: Said | None = None
    polls: tuple[tuple[float, Said], ...] = ()
    slow_polls: tuple[tuple[float, Said], ...] = ()
    confirmed: tuple[tuple[float, Said], ...] = ()
    ablated: Mapping[str, Said] = field(default_factory=dict)
    removed: Mapping[str, Said] = field(default_factory=dict)


def ask(window: Window, past: Window | None) -> Said:
    """What a diagnosis with confidences as the rules state them says, and what the product tells of it."""
    verdict = raw(window, past).verdict
    also = tuple((v.klass.value, v.cause, v.ranks) for v in verdict.also)
    sure = verdict.confidence
    if verdict.cause is not None:
        sure = told(sure, verdict.cause, verdict.klass, compared=past is not None)
    return Said(verdict.klass.value, verdict.cause, verdict.ranks, verdict.confidence, sure, verdict.severity.value, also)


def raw(window: Window, past: Window | None) -> EngineDiagnosis:
    """The diagnosis with confidences as the rules state them."""
    return diagnose(window, past, sure=lambda stated, _: stated)


class Replay:
    """Pages in an intake, cut by seconds after the first page of all."""

    def __init__(self, pages: Sequence[Page], start: float, length: float) -> None:
        self._intake = Intake(depth_s=length + 60.0)
        self._start = start
        for page in pages:
            self.feed(page)

    def feed(self, page: Page) -> None:
        """One page more, not older than those before."""
        self._intake.feed(page)

    def window(self, end: float, seconds: float = WINDOW) -> Window:
        """The `seconds` before `end`."""
        return self._intake.window(self._intake.engines()[0], seconds, end=self._start + end)


def serving(pages: Sequence[Page], length: float) -> Replay:
    """A capture as the service reads it."""
    return Replay(metrics_each(pages, READS.metrics), pages[0].arrived, length)


def observe(pages: Sequence[Page], look: Look) -> Observed:
    """Everything that `look` asks. `pages` must hold at least one."""
    start = pages[0].arrived
    replay, live = serving(pages, look.length), _live(pages, look)
    window = replay.window(look.moment + SETTLE + WINDOW)
    past = replay.window(look.moment - 2.0, PAST) if look.has_past else None
    brief_past = live.window(look.moment - 2.0, BRIEF_PAST) if look.has_past else None
    felt = feels(replay, look)
    return Observed(
        main=ask(window, past),
        rise=_rise(felt.step, look.usual),
        signals=frozenset(name for name in window.values if window.has(name)),
        moved=math.nan if look.usual is None else moved(felt, look.usual),
        brief=ask(live.window(look.moment + SETTLE + BRIEF, BRIEF), brief_past),
        no_past=ask(window, None) if look.has_past else None,
        polls=_polls(live, brief_past, look) if look.polls else (),
        slow_polls=_slow_polls(pages, start, look) if look.polls else (),
        confirmed=_incidents(pages, past, look) if look.incidents else (),
        ablated=_ablated(metrics_each(pages, READS.metrics), start, window, past, look) if look.ablate else {},
        removed=_removed(window, past) if look.remove else {},
    )


def _live(pages: Sequence[Page], look: Look) -> Replay:
    """What somebody reads who comes to look."""
    start = pages[0].arrived
    seen = [page for page in pages if page.arrived - start >= look.moment - BRIEF_PAST - SETTLE]
    return Replay(metrics_each(seen, BRIEF_READS), start, look.length)


def feels(replay: Replay, look: Look) -> Facts:
    """What the engine does from SETTLE after the moment to the end."""
    return facts(replay.window(look.length, look.length - look.moment - SETTLE))


def _rise(now: float | None, usual: Facts | None) -> float:
    if usual is None or not usual.step:
        return math.nan
    return now / usual.step if now else math.inf


def _polls(live: Replay, past: Window | None, look: Look) -> tuple[tuple[float, Said], ...]:
    """The last ten seconds at every second after the moment, until forty."""
    return tuple((float(t), ask(live.window(look.moment + t, BRIEF), past)) for t in range(1, 41))


def _slow_polls(pages: Sequence[Page], start: float, look: Look) -> tuple[tuple[float, Said], ...]:
    """The last minute at every scrape of a slow scraper, which comes at any phase of the moment."""
    slow = Replay(thinned(pages), start, look.length)
    past = slow.window(look.moment - 2.0, look.moment - 2.0) if look.has_past else None
    first = EVERY - (start + look.moment) % EVERY
    ends = [first + EVERY * n for n in range(int((look.length - look.moment - first) // EVERY) + 1)]
    return tuple((t, ask(slow.window(look.moment + t, SLOW_WINDOW), past)) for t in ends)


def _incidents(pages: Sequence[Page], past: Window | None, look: Look) -> tuple[tuple[float, Said], ...]:
    """Incidents as the service confirms them, which reads metrics sooner while something is suspected; its phase does not favour the
    moment."""
    start, reading = pages[0].arrived, _Reading(pages, look)
    book: Incidents = ()
    found: list[tuple[float, Said]] = []
    end = look.moment - DIAGNOSED_EVERY + 7.0
    while end <= look.length:
        reading.read_until(start + end)
        diagnosis = raw(reading.replay.window(end), past)
        book, events = advance(book, diagnosis, Policy())
        reading.suspected = any(i.state is State.SUSPECTED and i.severity is not Severity.NOTE for i in book)
        for event in events:
            if event.kind is Kind.CONFIRMED:
                incident = next(i for i in book if i.id == event.incident)
                sure = calibrated(incident.confidence, incident.cause)
                one = Said(incident.klass.value, incident.cause, incident.ranks, incident.confidence, sure, incident.severity.value)
                found.append((end - look.moment, one))
        end += DIAGNOSED_EVERY
    return tuple(found)


class _Reading:
    """The service reading on: of the pages of a capture those that it would have asked for."""

    def __init__(self, pages: Sequence[Page], look: Look) -> None:
        self.suspected = False
        self.replay = Replay((), pages[0].arrived, look.length)
        first = pages[0].arrived + look.moment - DIAGNOSED_EVERY - WINDOW - READS.metrics
        self._pages = iter(sorted((page for page in pages if page.arrived >= first), key=lambda page: page.arrived))
        self._next = next(self._pages, None)
        self._due: dict[str, float] = {}  # node -> unix seconds of its next metrics page

    def read_until(self, end: float) -> None:
        """All pages up to `end`, unix seconds."""
        while (page := self._next) is not None and page.arrived <= end:
            if page.source not in METRICS:
                self.replay.feed(page)
            elif page.arrived >= self._due.get(page.node, 0.0):
                self.replay.feed(page)
                self._due[page.node] = page.arrived + (READS.metrics_suspected if self.suspected else READS.metrics)
            self._next = next(self._pages, None)


def _ablated(pages: Sequence[Page], start: float, window: Window, past: Window | None, look: Look) -> dict[str, Said]:
    out = {}
    for ablation in ABLATIONS:
        now, before = window, past
        if ablation.pages is not None:
            less = Replay(ablation.pages(pages), start, look.length)
            seconds = ablation.window or WINDOW
            now = less.window(look.moment + SETTLE + seconds, seconds)
            before = less.window(look.moment - 2.0, PAST) if look.has_past else None
        out[ablation.name] = ask(ablation.cut(now), ablation.cut(before) if before else None)
    return out


def _removed(window: Window, past: Window | None) -> dict[str, Said]:
    there = [name for name in window.values if window.has(name)]
    return {name: ask(window.without(name), past.without(name) if past else None) for name in there}
