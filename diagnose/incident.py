"""Verdicts through time: suspected within seconds, confirmed when it persists, resolved when it stays away. A pure state machine.

    suspected --windows agree--> confirmed          found again: back to what it was
        |                           |                  ^
        +----- clear for a while ---+----> resolved ---+--- cool-down passes ---> closed

Nothing here reads a clock: the time of a verdict is the end of its window. Evidence that says nothing about a cause neither opens nor
resolves; it only grows stale. People are told twice of an incident: when it is confirmed, and when it is closed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from diagnose.engine import UNEXPLAINED
from diagnose.incident_match import Match, Sighting, match, priced, reaches, same_place, sightings
from diagnose.incident_model import Event, Incident, Kind, Policy, State, Told
from diagnose.incident_quiet import Incidents, age, leave
from diagnose.model import Class, EngineDiagnosis, Finding, Healthy, NoData

__all__ = ["Event", "Incident", "Kind", "Policy", "State", "advance", "age", "leave"]


def advance(incidents: Incidents, diagnosis: EngineDiagnosis, policy: Policy) -> tuple[Incidents, tuple[Event, ...]]:
    """The incidents after one more verdict, and what happened. Those of other engines pass through untouched.

    A verdict that is late, repeated or without a proper window changes nothing. The newest verdict is remembered in the engine's
    incidents, so before there is any, each verdict is taken as it comes.
    """
    others = tuple(i for i in incidents if i.engine != diagnosis.engine.id)
    mine = tuple(i for i in incidents if i.engine == diagnosis.engine.id)
    last = max((i.judged for i in mine), default=-math.inf)
    proper = math.isfinite(diagnosis.start) and math.isfinite(diagnosis.end) and diagnosis.start < diagnosis.end
    if not proper or last - policy.late <= diagnosis.end <= last:
        return incidents, ()
    turn = _Turn(mine, diagnosis, policy)
    turn.play()
    return others + turn.kept(), tuple(turn.events)


class _Word(Enum):
    """What a verdict that does not name a cause says of it."""

    GONE = 1
    THERE = 2
    NOTHING = 3


def _word(incident: Incident, diagnosis: EngineDiagnosis, policy: Policy) -> _Word:
    """An insufficient verdict is silence, unless the incident's own rule looked: an engine that never publishes some other rule's signal
    is never healthy, and its incidents must be able to end all the same."""
    verdict = diagnosis.verdict
    if verdict.klass is Class.HEALTHY:
        return _Word.GONE
    outcome = next((o.outcome for o in diagnosis.outcomes if o.rule == incident.cause), None)
    unclear = verdict.klass is Class.INSUFFICIENT
    match outcome:
        case Finding():
            still = same_place(incident.klass, incident.ranks, outcome.ranks) and reaches(priced(outcome.share), policy.resolve_share)
            return _Word.THERE if still else _Word.GONE
        case NoData():
            return _Word.NOTHING
        case Healthy():
            lost = verdict.lost_time.by_cause.get("unexplained", 0.0) >= UNEXPLAINED  # it may have lost its name, not gone
            return _Word.NOTHING if unclear and (lost or diagnosis.step_time is None) else _Word.GONE
    return _Word.NOTHING if unclear else _Word.GONE


class _Turn:
    """One engine's incidents while one verdict is worked in."""

    def __init__(self, incidents: Incidents, diagnosis: EngineDiagnosis, policy: Policy) -> None:
        self.diagnosis, self.policy = diagnosis, policy
        self.start, self.end = diagnosis.start, diagnosis.end
        self.book = {i.id: _on_this_clock(i, self.end) for i in incidents}
        self.events: list[Event] = []

    def play(self) -> None:
        """Match what the verdict names, judge what it does not name, and let the rest age."""
        before = [i for i in self.book.values() if i.open]
        matches = match(before, sightings(self.diagnosis, self.policy.resolve_share))
        named = {i.id for m in matches for i in (m.incident, *m.absorbed) if i is not None}
        for incident in before:
            if incident.id not in named:
                self._unnamed(incident)
        for found in matches:
            if found.incident is not None:
                self._found_again(found.incident, found)
        for found in matches:  # after those that continue: only what this verdict does not name may have to make room
            if found.incident is None and self._significant(found.sighting) and self._room():
                self._open(found.sighting)
        aged, stale = age(tuple(replace(i, judged=self.end) for i in self.book.values()), self.end, self.policy)
        self.book = {i.id: i for i in aged}
        self.events.extend(stale)

    def kept(self) -> Incidents:
        """All open incidents, the newest closed ones, and every one that has an event now."""
        closed = [i.id for i in sorted(self.book.values(), key=lambda i: i.closed or -math.inf) if not i.open]
        spoken = {event.incident for event in self.events}
        gone = set(closed[: max(0, len(closed) - self.policy.closed_limit)]) - spoken
        return tuple(i for i in self.book.values() if i.id not in gone)

    def _significant(self, sighting: Sighting) -> bool:
        return reaches(sighting.share, self.policy.open_share)

    def _found_again(self, incident: Incident, found: Match) -> None:
        significant = self._significant(found.sighting)
        if incident.state is State.RESOLVED and not significant:
            self._put(replace(incident, informed=self.end, stale=False))
            return
        incident = self._returned(_seen(incident, found.sighting, self.end))
        for other in found.absorbed:
            self._close(other, f"the same as incident {incident.id}, which continues")
            incident = replace(incident, ever=_union(incident.ever, other.ever))
        if significant and self.start >= incident.agreed_until:
            incident = replace(
                incident, agreed=incident.agreed + 1, evidence=incident.evidence + self.end - self.start, agreed_until=self.end
            )
        persists = incident.agreed >= self.policy.windows and incident.evidence >= self.policy.evidence
        if incident.state is State.SUSPECTED and persists and significant:
            incident = replace(incident, state=State.CONFIRMED, confirmed=self.end, told=_told(incident, incident.told.changed))
            self._say(incident, Kind.CONFIRMED, incident.summary)
        else:
            self._changed(incident)

    def _returned(self, incident: Incident) -> Incident:
        """An incident that is found: live again if it was cooling down."""
        if incident.state is not State.RESOLVED:
            return incident
        state = State.SUSPECTED if incident.confirmed is None else State.CONFIRMED
        return replace(incident, state=state, resolved=None, returns=incident.returns + 1)

    def _changed(self, incident: Incident) -> None:
        """Say what differs from what was said last, but not too often: what is held back now is said when the quiet time is over."""
        last = incident.told.changed
        new = _told(incident, last)
        if new == incident.told or (last is not None and self.end - last < self.policy.quiet):
            self._put(incident)
            return
        self._say(replace(incident, told=replace(new, changed=self.end)), Kind.CHANGED, _difference(incident.told, new))

    def _unnamed(self, incident: Incident) -> None:
        word = _word(incident, self.diagnosis, self.policy)
        if word is _Word.NOTHING:
            return
        incident = replace(incident, informed=self.end, stale=False)
        cooling = incident.state is State.RESOLVED
        if word is _Word.THERE:
            self._put(incident if cooling else replace(incident, clear=0.0, last_seen=self.end))
            return
        passed = min(self.end - incident.judged, self.end - self.start)  # a gap between windows was not observed
        incident = replace(incident, clear=incident.clear + passed)
        if not cooling and incident.clear >= self.policy.clear:
            incident = replace(incident, state=State.RESOLVED, resolved=self.end, agreed=0, evidence=0.0, agreed_until=self.end)
        if incident.state is State.RESOLVED and incident.clear >= self.policy.clear + self.policy.cool_down:
            self._close(incident, f"clear for {incident.clear:.0f} s of observed time")
        else:
            self._put(incident)

    def _room(self) -> bool:
        """Whether one more can be opened; a suspected incident that this verdict does not name makes room, the one seen longest ago."""
        held = [i for i in self.book.values() if i.open]
        if len(held) < self.policy.open_limit:
            return True
        spare = [i for i in held if i.confirmed is None and i.last_seen != self.end]
        if spare:
            self._close(min(spare, key=lambda i: i.last_seen), "given up, as this engine has too many suspected incidents")
        return bool(spare)

    def _open(self, found: Sighting) -> None:
        incident = Incident(
            id=self._fresh_id(found),
            engine=self.diagnosis.engine.id,
            klass=found.klass,
            cause=found.cause,
            ranks=found.ranks,
            state=State.SUSPECTED,
            opened=self.end,
            last_seen=self.end,
            severity=found.severity,
            share=found.share,
            peak_share=found.share,
            confidence=found.confidence,
            summary=found.summary,
            told=Told(found.cause, found.ranks, found.severity, 0),
            judged=self.end,
            informed=self.end,
            agreed_until=self.end,
            evidence=self.end - self.start,
            ever=found.ranks,
        )
        self._say(incident, Kind.OPENED, found.summary)

    def _fresh_id(self, found: Sighting) -> str:
        """Derived from what is known at opening, so that a repeated run gives the same; numbered if a set-back clock repeats a moment."""
        number = 0
        while True:
            name = (self.diagnosis.engine.id, found.klass.value, found.cause, found.ranks, self.end, number)
            made = hashlib.sha256(repr(name).encode()).hexdigest()[:16]
            if made not in self.book:
                return made
            number += 1

    def _close(self, incident: Incident, why: str) -> None:
        resolved = self.end if incident.resolved is None else incident.resolved
        self._say(replace(incident, state=State.RESOLVED, resolved=resolved, closed=self.end), Kind.RESOLVED, why)

    def _say(self, incident: Incident, kind: Kind, what: str) -> None:
        event = Event(kind, self.end, incident.id, what, incident.confirmed is not None)
        self.events.append(event)
        self._put(incident.noted(event, self.policy.event_limit))

    def _put(self, incident: Incident) -> None:
        self.book[incident.id] = incident


def _on_this_clock(incident: Incident, end: float) -> Incident:
    """The incident with no mark in the future: after a clock was set back they would hold it still until the old time comes again."""
    last = incident.told.changed
    return replace(
        incident,
        judged=min(incident.judged, end),
        informed=min(incident.informed, end),
        agreed_until=min(incident.agreed_until, end),
        told=incident.told if last is None else replace(incident.told, changed=min(last, end)),
    )


def _seen(incident: Incident, found: Sighting, end: float) -> Incident:
    """The incident as it is found now. Ranks stay when the signals can no longer name one."""
    ranks = found.ranks or incident.ranks
    return replace(
        incident,
        cause=found.cause,
        ranks=ranks,
        ever=_union(incident.ever, ranks),
        severity=found.severity,
        share=found.share,
        peak_share=max((s for s in (incident.peak_share, found.share) if s is not None), default=None),
        confidence=found.confidence,
        summary=found.summary,
        last_seen=end,
        informed=end,
        stale=False,
        clear=0.0,
    )


def _union(one: Iterable[int], other: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))


def _told(incident: Incident, changed: float | None) -> Told:
    return Told(incident.cause, incident.ranks, incident.severity, incident.returns, changed)


def _difference(before: Told, now: Told) -> str:
    parts = []
    if now.returns > before.returns:
        parts.append("it came back after it had cleared")
    if now.cause != before.cause:
        parts.append(f"{before.cause} is now known as {now.cause}")
    if now.ranks != before.ranks:
        parts.append(f"ranks {_list(before.ranks)} became {_list(now.ranks)}")
    if now.severity is not before.severity:
        parts.append(f"{before.severity.value} became {now.severity.value}")
    return "; ".join(parts)


def _list(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks)) or "unknown"
