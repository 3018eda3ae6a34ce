"""Incidents and what is owed of them, on disk. One `Batch` is one transaction: a decision is kept with its messages or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from collector.model import Problem
from diagnose.alerts.database import lock, open_writer
from diagnose.alerts.notification import Notification
from diagnose.incident_model import Incident

KEPT = 10_000
"""Ended incidents that are kept, the newest: at 5 kB each (32 events), 50 MB."""

KEPT_FOR = 90 * 86400.0
"""s that an ended incident is kept: a quarter, the period that reliability is reported over. Held against the newest end in the file and
not against a clock, so that a clock that jumps ahead deletes nothing."""

Made = TypeVar("Made")


@dataclass(slots=True)
class Batch:
    """What has to be written. The latest value of each thing counts, so that a batch that could not be written grows with the number of
    things, not with the time."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    notices: dict[str, Notification] = field(default_factory=dict)
    deliveries: dict[tuple[str, str], int] = field(default_factory=dict)  # (receiver, incident) -> delivered version
    gone: dict[str, tuple[str, str] | None] = field(default_factory=dict)  # receiver -> (fingerprint, why); None: it is back

    def __bool__(self) -> bool:
        return bool(self.incidents or self.notices or self.deliveries or self.gone)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file held, and what in it could not be read."""

    incidents: tuple[Incident, ...]
    notices: tuple[Notification, ...]
    deliveries: dict[tuple[str, str], int]
    gone: dict[str, tuple[str, str]]
    problems: tuple[Problem, ...]


class Ledger:
    """The one writer of an incident file."""

    def __init__(self, path: Path) -> None:
        """ConfigError when the file cannot be opened, or another process has it."""
        self.path = path
        self._lock = lock(path)
        try:
            self._db = open_writer(path)
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        """Give the file free. Twice does no harm."""
        self._db.close()
        self._lock.close()

    def load(self, closed: int) -> Loaded:
        """The open incidents, the `closed` newest ended ones, and all that is owed. Raises sqlite3.Error."""
        problems: list[Problem] = []
        rows = self._db.execute("SELECT body FROM incidents WHERE closed IS NULL ORDER BY opened, id").fetchall()
        rows += self._db.execute("SELECT body FROM incidents WHERE closed IS NOT NULL ORDER BY closed DESC LIMIT ?", (closed,)).fetchall()
        incidents = tuple(self._read(rows, Incident.from_json, "incident", problems))
        owed = "SELECT 1 FROM deliveries d WHERE d.incident = n.incident AND d.delivered < n.version"
        rows = self._db.execute(f"SELECT n.body FROM notices n WHERE n.firing OR EXISTS ({owed})").fetchall()  # noqa: S608 - ours
        notices = tuple(self._read(rows, Notification.from_json, "notice", problems))
        known = {n.incident for n in notices}
        rows = self._db.execute("SELECT receiver, incident, delivered FROM deliveries ORDER BY incident").fetchall()
        deliveries = {(receiver, incident): delivered for receiver, incident, delivered in rows if incident in known}
        gone = {receiver: (mark, why) for receiver, mark, why in self._db.execute("SELECT receiver, fingerprint, why FROM gone")}
        return Loaded(incidents, notices, deliveries, gone, tuple(problems))

    def write(self, batch: Batch, *, durable: bool) -> None:
        """All of it or nothing. `durable`: outlasts a power cut too; without, it outlasts the process. Raises sqlite3.Error."""
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._put(batch)
            if any(not i.open for i in batch.incidents.values()):
                self._retire()
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _put(self, batch: Batch) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (i.id, i.engine, i.state.value if i.open else "closed", i.opened, i.last_seen, i.closed, json.dumps(i.to_json()))
                for i in batch.incidents.values()
            ],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO notices VALUES (?, ?, ?, ?)",
            [(n.incident, n.version, n.firing, json.dumps(n.to_json())) for n in batch.notices.values()],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?)",
            [(receiver, incident, delivered) for (receiver, incident), delivered in batch.deliveries.items()],
        )
        back = [(receiver,) for receiver, mark in batch.gone.items() if mark is None]
        self._db.executemany("DELETE FROM gone WHERE receiver = ?", back)
        gone = [(receiver, *mark) for receiver, mark in batch.gone.items() if mark is not None]
        self._db.executemany("INSERT OR REPLACE INTO gone VALUES (?, ?, ?)", gone)

    def _retire(self) -> None:
        """Delete ended incidents that are too old or too many, with what was owed of them."""
        oldest = self._db.execute("SELECT max(closed) FROM incidents").fetchone()[0] - KEPT_FOR
        beyond = "SELECT id FROM incidents WHERE closed IS NOT NULL ORDER BY closed DESC LIMIT -1 OFFSET ?"
        done = self._db.execute(f"DELETE FROM incidents WHERE closed < ? OR id IN ({beyond})", (oldest, KEPT))  # noqa: S608 - ours
        if done.rowcount:
            for table in ("notices", "deliveries"):
                self._db.execute(f"DELETE FROM {table} WHERE incident NOT IN (SELECT id FROM incidents)")  # noqa: S608 - ours

    def _read(self, rows: Iterable[tuple[str]], make: Callable[[Any], Made], what: str, problems: list[Problem]) -> Iterator[Made]:
        for (body,) in rows:
            try:
                yield make(json.loads(body))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                problems.append(
                    Problem(str(self.path), f"a stored {what} cannot be read ({type(error).__name__}: {error})", "it is left out")
                )
