"""The incident file: SQLite in WAL mode, one writer, a numbered schema. Opening it for writing takes a lock that dies with the process."""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from collector.errors import ConfigError

BUSY = 5.0
"""s to wait for a reader that checkpoints; writers do not meet, see `lock`."""

MIGRATIONS = (
    """
    CREATE TABLE incidents (
      id TEXT PRIMARY KEY, engine TEXT NOT NULL, state TEXT NOT NULL, opened REAL NOT NULL, last_seen REAL NOT NULL, closed REAL,
      body TEXT NOT NULL
    ) STRICT;
    CREATE INDEX incidents_by_engine ON incidents (engine, opened);
    CREATE INDEX incidents_by_time ON incidents (opened);
    CREATE TABLE notices (
      incident TEXT PRIMARY KEY, version INTEGER NOT NULL, firing INTEGER NOT NULL, body TEXT NOT NULL
    ) STRICT;
    CREATE TABLE deliveries (
      receiver TEXT NOT NULL, incident TEXT NOT NULL, delivered INTEGER NOT NULL, PRIMARY KEY (receiver, incident)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE gone (receiver TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, why TEXT NOT NULL) STRICT;
    """,
)
"""Number n brings a file from `user_version` n to n + 1. A migration that was released is never edited: append one.

`state` is the incident's, or "closed"; `body` JSON. `delivered` is the newest notice version that the receiver took, 0 for none: a row is
owed while it is below the notice's. `gone` holds receivers that answered 410, and as what they were configured then."""


def open_writer(path: Path) -> sqlite3.Connection:
    """The file, made or brought to the newest schema. ConfigError when it cannot be: no such folder, no incident file, a newer slowrank."""
    try:
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise ConfigError(f"{path}: cannot be used as incident file ({error}); name a file in a folder that exists and has room") from None
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """The file as it is, for questions only. ConfigError when there is none or it is something else."""
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such incident file; name the one that slowrank writes")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY)
        try:
            version = _version(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise ConfigError(f"{path}: cannot be read as incident file ({error})") from None
    if version != len(MIGRATIONS):
        connection.close()
        known = f"this slowrank reads schema {len(MIGRATIONS)}"
        raise ConfigError(f"{path}: has schema {version}, {known}; read it with the slowrank that writes it")
    return connection


def lock(path: Path) -> BinaryIO:
    """An open file that holds `path` for this process. ConfigError when another one has it: both would send every alert."""
    name = path.with_name(f"{path.name}.lock")
    try:
        held = name.open("ab")
    except OSError as error:
        raise ConfigError(f"{name}: cannot be made ({error.strerror}); name an incident file in a folder that can be written") from None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise ConfigError(f"{path}: another slowrank has this incident file open; stop it, or name another file") from None
    return held


def _version(connection: sqlite3.Connection) -> int:
    with closing(connection.execute("PRAGMA user_version")) as found:
        return int(found.fetchone()[0])


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"{path}: has schema {version}, this slowrank writes {len(MIGRATIONS)}; run the newer slowrank, or name another file"
        )
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if version == 0 and tables:
        raise ConfigError(f"{path}: is a database of something else; name another file")
    for number in range(version, len(MIGRATIONS)):  # each in one transaction with its number: killed in between, it is not half done
        connection.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[number]} PRAGMA user_version = {number + 1}; COMMIT;")
