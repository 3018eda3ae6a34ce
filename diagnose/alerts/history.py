"""Questions to an incident file, for a person or a page: reads beside the writer, changes nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from collector.errors import ConfigError
from diagnose.alerts.database import open_reader
from diagnose.incident_model import Incident

STATES = ("suspected", "confirmed", "resolved", "closed")
"""What is stored: an incident's state, resolved ones may still come back; closed when they cannot."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which incidents. None: all. Times are unix seconds."""

    engine: str | None = None
    states: tuple[str, ...] | None = None
    since: float | None = None  # open then or later
    until: float | None = None  # opened before
    limit: int = 100  # the newest


def ask(path: Path, question: Question) -> tuple[Incident, ...]:
    """The incidents, newest first. ConfigError when the file cannot be read."""
    wheres, values = ["1"], []
    for clause, value in (
        ("engine = ?", question.engine),
        ("coalesce(closed, 9e99) >= ?", question.since),
        ("opened < ?", question.until),
    ):
        if value is not None:
            wheres.append(clause)
            values.append(value)
    if question.states is not None:
        wheres.append(f"state IN ({', '.join('?' * len(question.states))})")
        values.extend(question.states)
    query = f"SELECT body FROM incidents WHERE {' AND '.join(wheres)} ORDER BY opened DESC, id LIMIT ?"  # noqa: S608 - the values are bound
    with _reading(path) as db:
        rows = db.execute(query, (*values, question.limit)).fetchall()
        return tuple(Incident.from_json(json.loads(body)) for (body,) in rows)


def find(path: Path, incident: str) -> Incident | None:
    """One incident by its id. ConfigError when the file cannot be read."""
    with _reading(path) as db:
        row = db.execute("SELECT body FROM incidents WHERE id = ?", (incident,)).fetchone()
        return None if row is None else Incident.from_json(json.loads(row[0]))


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_reader(path)) as db:
        try:
            yield db
        except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path}: cannot be read as incident file ({type(error).__name__}: {error})") from None
