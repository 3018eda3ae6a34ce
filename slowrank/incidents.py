"""The history of incidents for a person or a program: a table, or JSON. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from collector.errors import ConfigError
from diagnose.incident_model import Incident, State
from diagnose.report.plain import percent, prose, safe, utc
from slowrank.durations import parse_duration
from slowrank.exits import Exit

SCHEMA = "slowrank.incidents/1"
_DAYS = re.compile(r"(\d{1,5})d", re.ASCII)
_COLUMNS = ("state", "severity", "cause", "ranks", "now", "peak", "found", "lasted", "id", "engine")


def state_of(incident: Incident) -> str:
    """suspected, confirmed, resolved (it may come back) or closed (it cannot)."""
    return incident.state.value if incident.open else "closed"


def exit_of(incidents: Iterable[Incident]) -> Exit:
    """A finding when one of them is confirmed and still there."""
    return Exit.FINDING if any(i.state is State.CONFIRMED and i.open for i in incidents) else Exit.HEALTHY


def parse_since(text: str, now: float) -> float:
    """Unix seconds of `7d`, `90m` ago, or of a date or time (UTC if it does not say). ConfigError says how to write it."""
    try:
        days = _DAYS.fullmatch(text)
        if days:
            return now - int(days[1]) * 86400.0
        if text[:4].isdigit() and "-" in text:
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        return now - parse_duration(text)
    except (ValueError, OverflowError):
        raise ConfigError(f"--since {text}: is no time; write it as 7d, 12h, 2026-11-30 or 2026-11-30T08:00") from None


def table(incidents: Sequence[Incident]) -> list[str]:
    """One line per incident under a header, and what it was below."""
    rows = [_COLUMNS, *(_row(i) for i in incidents)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    out = [lines[0]]
    for line, incident in zip(lines[1:], incidents, strict=True):
        out += [line, f"    {prose(incident.summary, 300)}"]
    return out


def to_json(incidents: Sequence[Incident]) -> dict[str, Any]:
    """Everything that is known, with times in ISO 8601, UTC."""
    return {"schema": SCHEMA, "incidents": [_plain(i) for i in incidents]}


def _row(incident: Incident) -> tuple[str, ...]:
    i = incident
    return (
        state_of(i) + (" (no data)" if i.stale and i.open else ""),
        i.severity.value,
        safe(i.cause, 40),
        ",".join(map(str, i.ranks)) or "-",
        "-" if i.share is None else percent(i.share),
        "-" if i.peak_share is None else percent(i.peak_share),
        utc(i.opened).removesuffix(" UTC"),
        lasted(i.last_seen - i.opened),
        safe(i.id, 40),
        safe(i.engine, 80),
    )


def lasted(seconds: float) -> str:
    """A time span in the two units that matter."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    return f"{rest}s" if not minutes else f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def _plain(incident: Incident) -> dict[str, Any]:
    i = incident
    return {
        "id": i.id,
        "engine": i.engine,
        "class": i.klass.value,
        "cause": i.cause,
        "ranks": list(i.ranks),
        "state": state_of(i),
        "severity": i.severity.value,
        "stale": i.stale,
        "opened": _time(i.opened),
        "confirmed": _time(i.confirmed),
        "last_seen": _time(i.last_seen),
        "resolved": _time(i.resolved),
        "closed": _time(i.closed),
        "share": i.share,
        "peak_share": i.peak_share,
        "confidence": i.confidence,
        "returns": i.returns,
        "summary": i.summary,
        "events": [{"kind": e.kind.value, "at": _time(e.at), "what": e.what} for e in i.events],
    }


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
