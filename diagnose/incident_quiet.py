"""Incidents of which no verdict comes: the data stopped, or nobody watches their engine any longer. Pure."""

from __future__ import annotations

from dataclasses import replace

from diagnose.incident_model import Event, Incident, Kind, Policy, State

Incidents = tuple[Incident, ...]


def age(incidents: Incidents, now: float, policy: Policy) -> tuple[Incidents, tuple[Event, ...]]:
    """The incidents when no verdict came: says once, of each open one, that it has had no data for too long."""
    events: list[Event] = []
    aged = []
    for incident in incidents:
        if incident.open and not incident.stale and now - incident.informed >= policy.stale:
            event = Event(Kind.STALE, now, incident.id, f"no data since {incident.informed:.0f}", incident.confirmed is not None)
            events.append(event)
            incident = replace(incident, stale=True).noted(event, policy.event_limit)  # noqa: PLW2901 - the same incident, aged
        aged.append(incident)
    return tuple(aged), tuple(events)


def leave(incidents: Incidents, engine: str, now: float, policy: Policy) -> tuple[Incidents, tuple[Event, ...]]:
    """The incidents when an engine is watched no longer: its open ones end, as no verdict will ever clear them."""
    events: list[Event] = []
    left = []
    for incident in incidents:
        if incident.open and incident.engine == engine:
            why = "the engine is not watched any longer; whether it is over is not known"
            event = Event(Kind.RESOLVED, now, incident.id, why, incident.confirmed is not None)
            events.append(event)
            over = replace(incident, state=State.RESOLVED, resolved=now if incident.resolved is None else incident.resolved, closed=now)
            incident = over.noted(event, policy.event_limit)  # noqa: PLW2901 - the same incident, ended
        left.append(incident)
    return tuple(left), tuple(events)
