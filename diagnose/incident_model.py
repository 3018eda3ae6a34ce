"""What an incident is: a cause through time, with what was said about it. Frozen, no IO; JSON values there and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from diagnose.model import Class, Severity


class State(Enum):
    """How far an incident has come. RESOLVED may still come back, until `Incident.closed` is set."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    RESOLVED = "resolved"


class Kind(Enum):
    """What happened to an incident. At most one each of OPENED, CONFIRMED and RESOLVED in an incident's life."""

    OPENED = "opened"  # first significant verdict; wakes nobody
    CONFIRMED = "confirmed"  # it persists: this is the page
    CHANGED = "changed"  # other ranks, another name, another severity, or back after it had cleared
    RESOLVED = "resolved"  # over for good: clear, and the cool-down has passed too
    STALE = "stale"  # no data that could confirm or clear it


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to one incident; what a notifier acts on. `notify`: people know of the incident, or are to know now."""

    kind: Kind
    at: float  # unix seconds: the window's end, or the time given
    incident: str  # id
    what: str  # one sentence
    notify: bool


@dataclass(frozen=True, slots=True)
class Told:
    """What the last event said, and when the last CHANGED went out; None: none has."""

    cause: str
    ranks: tuple[int, ...]
    severity: Severity
    returns: int
    changed: float | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """One cause on one engine through time. The id is of engine, class, cause and ranks at opening, and never changes.

    Times are unix seconds of window ends. Durations that decide (`clear`, `evidence`) are sums of observed time, not differences of
    clock readings: neither a clock that is set nor a pause in the data can fill them.
    """

    id: str
    engine: str
    klass: Class
    cause: str  # rule id; the latest name of the cause
    ranks: tuple[int, ...]  # empty: the signals cannot name one
    state: State
    opened: float
    last_seen: float  # when the cause was last found
    severity: Severity
    share: float | None  # of step time, now; None: the rule puts no figure on it
    peak_share: float | None
    confidence: float
    summary: str
    told: Told
    judged: float  # end of the last verdict on the engine, whatever it said
    informed: float  # end of the last verdict that could see this cause or its absence
    agreed_until: float  # end of the last window that counted as agreeing
    agreed: int = 1  # non-overlapping windows that found it since it was last clear
    evidence: float = 0.0  # s, their length together
    clear: float = 0.0  # s of observed time since the cause was last found
    returns: int = 0  # times it came back out of RESOLVED
    stale: bool = False
    ever: tuple[int, ...] = ()  # every rank that it named, so that a cause hopping among ranks stays one incident
    confirmed: float | None = None
    resolved: float | None = None
    closed: float | None = None  # cool-down passed, or merged: never comes back
    events: tuple[Event, ...] = ()  # the latest

    @property
    def open(self) -> bool:
        """Whether it can still change: live, or resolved and cooling down."""
        return self.closed is None

    def noted(self, event: Event, limit: int) -> Incident:
        """The incident with one more event, of which it keeps the latest `limit`."""
        return replace(self, events=(*self.events, event)[-limit:])

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, from which `from_json` makes an equal incident."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Incident:
        """The incident that `to_json` stored. Raises KeyError, TypeError or ValueError when it is not one."""
        told = stored["told"]
        return cls(
            **{
                **stored,
                "klass": Class(stored["klass"]),
                "ranks": tuple(stored["ranks"]),
                "ever": tuple(stored["ever"]),
                "state": State(stored["state"]),
                "severity": Severity(stored["severity"]),
                "told": Told(**{**told, "ranks": tuple(told["ranks"]), "severity": Severity(told["severity"])}),
                "events": tuple(Event(**{**event, "kind": Kind(event["kind"])}) for event in stored["events"]),
            }
        )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers that decide. Shares are of step time, times in seconds."""

    open_share: float = 0.05
    """Opens, confirms and re-opens: the size from which the rules blame a cause."""

    resolve_share: float = 0.03
    """Still there from here on: healthy windows lose up to 0.03 by chance (benchmarks/healthy_spread.py), so less is no sign of a cause.
    Lower than `open_share`, so that a loss that hovers at the limit does not come and go."""

    windows: int = 2
    """Agreeing windows, not overlapping, that confirm. Overlapping ones share their evidence, so their agreement says nothing; chance has
    to strike the same cause on the same rank twice within `clear`."""

    evidence: float = 20.0
    """Agreeing seconds that confirm: two windows of 10 s, the length on which the rules' limits were measured. Shorter windows need more
    of them. A page so comes 20 s after onset at the earliest."""

    clear: float = 120.0
    """Observed time without the cause before it is resolved: six times what confirms, since a wrong all-clear costs more than a late one,
    and longer than the 60 s after which a Prometheus read at 15 s has four new points."""

    cool_down: float = 600.0
    """Further clear time in which a return continues the incident. Ten minutes outlast a restart with its model load, a periodic job and
    a router that backs off and tries again, each of which would else page once per cycle."""

    quiet: float = 300.0
    """Least time between two CHANGED of one incident: twelve an hour at most, however fast ranks hop."""

    stale: float = 300.0
    """Without data for so long is said aloud: five minutes, the age at which Prometheus drops a series."""

    late: float = 120.0
    """A verdict older than the last one by up to this much is late and ignored; by more, the clock was set back, and is followed. A
    verdict is held up by a window and a scrape's timeout at most, which is less. A clock set back by less holds incidents still so long."""

    open_limit: int = 64
    """Open incidents per engine: as many as the ranks of the largest groups in use. Beyond, a suspected one makes room."""

    closed_limit: int = 32
    """Closed incidents kept per engine, the newest: what a status page shows."""

    event_limit: int = 32
    """Events kept per incident, the latest."""
