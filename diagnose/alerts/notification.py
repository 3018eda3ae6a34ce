"""What people are told of an incident. Pure: an event and its incident in, a notification out.

The identity of an alert is what was known when it was first told: receivers that compare labels would take anything else for another
alert, and page again. Only a severity that rises makes a new one, as someone who slept through a ticket has to be woken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from diagnose.incident_model import Event, Incident, Kind
from diagnose.model import Class, EngineDiagnosis, Severity, Verdict

LOUDER = {Severity.NOTE: 0, Severity.TICKET: 1, Severity.PAGE: 2}


class Status(Enum):
    """Alertmanager's words."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Notification:
    """The newest state of one incident, in values; each receiver writes it in its own way. Times are unix seconds.

    `first_cause`, `first_ranks` and `severity` are identity, the rest is text. `version` counts what was said: 1 is the page.
    """

    incident: str  # the key by which receivers know that two messages are of one incident
    version: int
    status: Status
    engine: str
    klass: Class
    first_cause: str
    first_ranks: tuple[int, ...]
    severity: Severity  # the highest that was told
    formerly: tuple[Severity, ...]  # lower ones that were told before
    cause: str
    ranks: tuple[int, ...]
    share: float | None  # of step time, now
    peak_share: float | None
    confidence: float  # 0..1
    summary: str
    update: str  # what happened last, one sentence; empty for the page
    remedy: str
    runbook: str  # the command that prints it
    link: str  # address of the incident's page; empty: there is none
    started: float  # when the cause was first found
    last_seen: float  # when it was last found: before the time that it must stay away
    fired: float  # when people were first told: confirmed
    ended: float | None = None  # None while firing
    silent_since: float | None = None  # there is no data since, so that it is neither seen nor gone
    more: tuple[tuple[str, str], ...] = ()  # the engine's own labels when it was first told: a cluster, a team

    @property
    def firing(self) -> bool:
        """Whether it is still on."""
        return self.status is Status.FIRING

    def labels(self, severity: Severity | None = None) -> dict[str, str]:
        """What the alert is, under the severity that it has or had. No numbers that change, so that no update makes another alert."""
        labels = {
            **dict(self.more),  # ours win: they are what receivers know the alert by
            "alertname": f"slowrank_{self.first_cause}",
            "class": self.klass.value,
            "engine": self.engine,
            "incident": self.incident,
            "severity": (severity or self.severity).value,
        }
        if self.klass is Class.SINGLE_POINT and self.first_ranks:  # of load and layout the rank is only where they show now
            labels["rank"] = ",".join(map(str, self.first_ranks))
        return labels

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which `from_json` makes an equal notification."""
        return {
            **asdict(self),
            "status": self.status.value,
            "klass": self.klass.value,
            "severity": self.severity.value,
            "formerly": [s.value for s in self.formerly],
            "first_ranks": list(self.first_ranks),
            "ranks": list(self.ranks),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Notification:
        """What `to_json` stored. Raises KeyError, TypeError or ValueError when it is none."""
        return cls(
            **{
                **stored,
                "status": Status(stored["status"]),
                "klass": Class(stored["klass"]),
                "severity": Severity(stored["severity"]),
                "formerly": tuple(Severity(s) for s in stored["formerly"]),
                "first_ranks": tuple(stored["first_ranks"]),
                "ranks": tuple(stored["ranks"]),
                "more": tuple((name, value) for name, value in stored.get("more", ())),  # files of before have none
            }
        )


def compose(
    incident: Incident,
    event: Event,
    before: Notification | None,
    diagnosis: EngineDiagnosis | None,
    external_url: str = "",
    more: tuple[tuple[str, str], ...] = (),
) -> Notification | None:
    """What to say of `event`, or None when nothing: people do not know of the incident, or it says nothing that they do not know.

    `before` is what was said last of this incident, `diagnosis` the verdict that made the event, if one did; `more` are the engine's own
    labels, which an alert keeps as they were when it was first told.
    """
    if not event.notify:
        return None
    now = _state(incident, before, diagnosis, external_url)
    now = replace(now, more=before.more if before is not None else more)
    if before is not None and not _news(event, before, now):
        return None
    said = event.what if before is not None and event.kind in {Kind.CHANGED, Kind.RESOLVED} else ""
    return replace(now, version=now.version + 1, update=said)


def refreshed(incident: Incident, before: Notification, diagnosis: EngineDiagnosis | None, external_url: str = "") -> Notification:
    """The same message with the numbers of now: for receivers that are told again and again while it lasts."""
    now = _state(incident, before, diagnosis, external_url)
    return replace(now, severity=before.severity, formerly=before.formerly, status=before.status, ended=before.ended, more=before.more)


def _news(event: Event, before: Notification, now: Notification) -> bool:
    """A return after a pause is none: an incident that flaps is told once. Nor is where a load shows, which moves by itself."""
    if event.kind is not Kind.CHANGED:
        return True
    moved = now.klass is Class.SINGLE_POINT and now.ranks != before.ranks
    return moved or now.cause != before.cause or now.severity is not before.severity


def _state(incident: Incident, before: Notification | None, diagnosis: EngineDiagnosis | None, external_url: str) -> Notification:
    verdict = _named(incident, diagnosis)
    severity = incident.severity
    formerly: tuple[Severity, ...] = ()
    if before is not None:
        severity, formerly = before.severity, before.formerly
        if LOUDER[incident.severity] > LOUDER[before.severity]:
            severity, formerly = incident.severity, (*before.formerly, before.severity)
    return Notification(
        incident=incident.id,
        version=before.version if before else 0,
        status=Status.FIRING if incident.open else Status.RESOLVED,
        engine=incident.engine,
        klass=incident.klass,
        first_cause=before.first_cause if before else incident.cause,
        first_ranks=before.first_ranks if before else incident.ranks,
        severity=severity,
        formerly=formerly,
        cause=incident.cause,
        ranks=incident.ranks,
        share=incident.share,
        peak_share=incident.peak_share,
        confidence=incident.confidence,
        summary=incident.summary,
        update=before.update if before else "",
        remedy=verdict.remedy if verdict else before.remedy if before else "",
        runbook=verdict.runbook if verdict else before.runbook if before else f"slowrank explain {incident.cause}",
        link=f"{external_url.rstrip('/')}/incidents/{incident.id}" if external_url else "",
        started=incident.opened,
        last_seen=incident.last_seen,
        fired=incident.opened if incident.confirmed is None else incident.confirmed,
        ended=incident.closed,
        silent_since=incident.informed if incident.stale and incident.open else None,
    )


def _named(incident: Incident, diagnosis: EngineDiagnosis | None) -> Verdict | None:
    """The part of the diagnosis that names the incident's cause."""
    if diagnosis is None:
        return None
    named = (v for v in (diagnosis.verdict, *diagnosis.verdict.also) if v.cause == incident.cause and v.klass is incident.klass)
    return next(named, None)
