"""What slowrank says of a capture: the diagnosing half, which is given pages and moments and knows no label.

A window is ten seconds; the one that counts ends fifteen seconds after the moment (five to settle). The half minute before the moment
is the healthy past, if there is one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.accuracy.ablate import ABLATIONS, EVERY, SLOW_WINDOW, thinned
from collector.intake import Intake
from collector.model import Page, Window
from diagnose.confidence import calibrated
from diagnose.engine import diagnose
from diagnose.incident import Kind, Policy, advance
from diagnose.incident_quiet import Incidents
from diagnose.lockstep import cadence
from diagnose.model import EngineDiagnosis, Verdict

WINDOW = 10.0
SETTLE = 5.0
PAST = 30.0
DIAGNOSED_EVERY = 10.0  # as the sidecar will


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
    usual: float | None = None  # s: the step time of the same engine without the fault, from SETTLE after the moment on
    polls: bool = False  # every second from the moment on, and at a slow scrape's pace
    incidents: bool = False
    ablate: bool = False
    remove: bool = False  # each signal by itself


@dataclass(frozen=True, slots=True)
class Observed:
    """`rise`: how many times as long a step is as in the same engine without the fault (inf: no steps; NaN: not known).

    Times are seconds after the moment."""

    main: Said
    rise: float
    signals: frozenset[str]
    no_past: Said | None = None
    polls: tuple[tuple[float, Said], ...] = ()
    slow_polls: tuple[tuple[float, Said], ...] = ()
    confirmed: tuple[tuple[float, Said], ...] = ()
    ablated: Mapping[str, Said] = field(default_factory=dict)
    removed: Mapping[str, Said] = field(default_factory=dict)


def said(verdict: Verdict) -> Said:
    """A verdict of a diagnosis that was made with raw confidences."""
    also = tuple((v.klass.value, v.cause, v.ranks) for v in verdict.also)
    sure = calibrated(verdict.confidence, verdict.cause) if verdict.cause else verdict.confidence
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
            self._intake.feed(page)

    def window(self, end: float, seconds: float = WINDOW) -> Window:
        """The `seconds` before `end`."""
        return self._intake.window(self._intake.engines()[0], seconds, end=self._start + end)


def observe(pages: Sequence[Page], look: Look) -> Observed:
    """Everything that `look` asks. `pages` must hold at least one."""
    start = pages[0].arrived
    replay = Replay(pages, start, look.length)
    window = replay.window(look.moment + SETTLE + WINDOW)
    past = replay.window(look.moment - 2.0, PAST) if look.has_past else None
    return Observed(
        main=said(raw(window, past).verdict),
        rise=_rise(step_time(replay, look), look.usual),
        signals=frozenset(name for name in window.values if window.has(name)),
        no_past=said(raw(window, None).verdict) if look.has_past else None,
        polls=_polls(replay, past, look) if look.polls else (),
        slow_polls=_slow_polls(pages, start, look) if look.polls else (),
        confirmed=_incidents(replay, past, look) if look.incidents else (),
        ablated=_ablated(pages, start, window, past, look) if look.ablate else {},
        removed=_removed(window, past) if look.remove else {},
    )


def step_time(replay: Replay, look: Look) -> float | None:
    """Seconds per step from SETTLE after the moment to the end; None when none was taken."""
    return cadence(replay.window(look.length, look.length - look.moment - SETTLE))


def _rise(now: float | None, usual: float | None) -> float:
    if not usual:
        return math.nan
    return now / usual if now else math.inf


def _polls(replay: Replay, past: Window | None, look: Look) -> tuple[tuple[float, Said], ...]:
    """The last ten seconds at every second after the moment, until forty."""
    return tuple((float(t), said(raw(replay.window(look.moment + t), past).verdict)) for t in range(1, 41))


def _slow_polls(pages: Sequence[Page], start: float, look: Look) -> tuple[tuple[float, Said], ...]:
    """The last minute at every scrape of a slow scraper, which comes at any phase of the moment."""
    slow = Replay(thinned(pages), start, look.length)
    past = slow.window(look.moment - 2.0, look.moment - 2.0) if look.has_past else None
    first = EVERY - (start + look.moment) % EVERY
    ends = [first + EVERY * n for n in range(int((look.length - look.moment - first) // EVERY) + 1)]
    return tuple((t, said(raw(slow.window(look.moment + t, SLOW_WINDOW), past).verdict)) for t in ends)


def _incidents(replay: Replay, past: Window | None, look: Look) -> tuple[tuple[float, Said], ...]:
    """Incidents as they are confirmed when the engine is diagnosed every ten seconds; the phase does not favour the moment."""
    book: Incidents = ()
    found: list[tuple[float, Said]] = []
    end = look.moment - DIAGNOSED_EVERY + 7.0
    while end <= look.length:
        diagnosis = raw(replay.window(end), past)
        book, events = advance(book, diagnosis, Policy())
        for event in events:
            if event.kind is Kind.CONFIRMED:
                incident = next(i for i in book if i.id == event.incident)
                sure = calibrated(incident.confidence, incident.cause)
                one = Said(incident.klass.value, incident.cause, incident.ranks, incident.confidence, sure, incident.severity.value)
                found.append((end - look.moment, one))
        end += DIAGNOSED_EVERY
    return tuple(found)


def _ablated(pages: Sequence[Page], start: float, window: Window, past: Window | None, look: Look) -> dict[str, Said]:
    out = {}
    for ablation in ABLATIONS:
        now, before = window, past
        if ablation.pages is not None:
            less = Replay(ablation.pages(pages), start, look.length)
            seconds = ablation.window or WINDOW
            now = less.window(look.moment + SETTLE + seconds, seconds)
            before = less.window(look.moment - 2.0, max(PAST, min(seconds, look.moment - 2.0))) if look.has_past else None
        out[ablation.name] = said(raw(ablation.cut(now), ablation.cut(before) if before else None).verdict)
    return out


def _removed(window: Window, past: Window | None) -> dict[str, Said]:
    there = [name for name in window.values if window.has(name)]
    return {name: said(raw(window.without(name), past.without(name) if past else None).verdict) for name in there}
