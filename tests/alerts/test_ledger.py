"""The incident file: all or nothing, one writer, old files brought up, foreign files refused, old incidents retired."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from collector.errors import ConfigError
from diagnose.alerts import ledger as module
from diagnose.alerts.database import MIGRATIONS, open_reader
from diagnose.alerts.desk import Desk
from diagnose.alerts.history import Question, ask, find
from diagnose.alerts.ledger import Batch, Ledger
from diagnose.alerts.routing import Route
from diagnose.incident import Policy


@pytest.fixture
def path(tmp_path):
    return tmp_path / "i.db"


@pytest.fixture
def ledger(path):
    made = Ledger(path)
    yield made
    made.close()


@pytest.fixture
def incident(ledger, story, verdict):
    """One that is confirmed, from a real verdict."""
    desk = Desk(ledger, [Route("r")], Policy())
    story.page(desk)
    (found,) = desk.incidents
    return found


def closed(incident, number, at):
    return replace(incident, id=f"{number:016x}", closed=at)


def test_what_was_written_comes_back(path, ledger, incident):
    """Incident, message and what is owed, equal, in another connection."""
    ledger.close()
    again = Ledger(path)
    held = again.load(32)
    again.close()
    assert held.incidents == (incident,)
    assert [(n.incident, n.version) for n in held.notices] == [(incident.id, 1)]
    assert held.deliveries == {("r", incident.id): 0}
    assert held.problems == ()


def test_a_batch_is_written_whole_or_not_at_all(ledger, incident, notice):
    """A failure at the last table leaves nothing of the first."""
    ledger._db.execute("CREATE TRIGGER no BEFORE INSERT ON gone BEGIN SELECT RAISE(ABORT, 'no'); END")
    batch = Batch({"x": replace(incident, id="x")}, {"x": notice(incident="x")}, {("r", "x"): 0}, {"r": ("f", "why")})
    with pytest.raises(sqlite3.Error):
        ledger.write(batch, durable=True)
    assert ledger._db.execute("SELECT count(*) FROM incidents WHERE id = 'x'").fetchone() == (0,)
    ledger._db.execute("DROP TRIGGER no")
    ledger.write(batch, durable=True)
    assert ledger.load(32).gone == {"r": ("f", "why")}


def test_two_services_do_not_share_a_file(path, ledger):
    """Both would send every alert; the second is told."""
    with pytest.raises(ConfigError, match="another slowrank has this incident file open"):
        Ledger(path)
    ledger.close()
    Ledger(path).close()


def test_a_newer_schema_is_refused_by_both_sides(path):
    """With both numbers, and what to do."""
    Ledger(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    for open_it in (Ledger, open_reader):
        with pytest.raises(ConfigError, match=f"has schema {len(MIGRATIONS) + 1}"):
            open_it(path)


def test_a_migration_that_fails_leaves_the_file_as_it_was(path, monkeypatch):
    """The number and the tables change in one transaction, so that it can be tried again."""
    Ledger(path).close()
    monkeypatch.setattr("diagnose.alerts.database.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE more (x) STRICT;"))
    with pytest.raises(ConfigError, match="cannot be used as incident file"):
        Ledger(path)  # STRICT wants a type
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    db.close()
    monkeypatch.setattr("diagnose.alerts.database.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE more (x TEXT) STRICT;"))
    Ledger(path).close()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    db.close()


@pytest.mark.parametrize("content", [b"this is no database at all, but long enough to look at" * 9, b"SQLite format 3\0" + b"\xff" * 600])
def test_a_file_of_something_else_is_refused(path, content):
    """And left as it is."""
    path.write_bytes(content)
    for open_it in (Ledger, open_reader):
        with pytest.raises(ConfigError, match="incident file"):
            open_it(path)
    assert path.read_bytes() == content


def test_a_database_of_something_else_is_refused(path):
    """Its tables are not touched."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    with pytest.raises(ConfigError, match="is a database of something else"):
        Ledger(path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """For the writer and the reader."""
    for open_it in (Ledger, open_reader):
        with pytest.raises(ConfigError, match=r"none/i\.db"):
            open_it(tmp_path / "none" / "i.db")


def test_a_row_that_cannot_be_read_is_left_out_and_said(path, ledger, incident):
    """The others are there."""
    ledger.write(Batch({"x": replace(incident, id="x")}), durable=False)
    ledger._db.execute("UPDATE incidents SET body = '{}' WHERE id = 'x'")
    held = ledger.load(32)
    assert [i.id for i in held.incidents] == [incident.id]
    assert [("a stored incident cannot be read" in p.what) for p in held.problems] == [True]


def test_ended_incidents_are_kept_by_number_and_age_open_ones_always(ledger, incident, notice, monkeypatch):
    """The newest three, none older than 90 days before the newest end; what was owed of the others goes with them."""
    monkeypatch.setattr(module, "KEPT", 3)
    day = 86400.0
    ledger.write(Batch({i.id: i for i in (closed(incident, n, n * day) for n in range(1, 6))}), durable=False)
    ledger.write(Batch({}, {f"{5:016x}": notice(incident=f"{5:016x}")}, {("r", f"{5:016x}"): 0}), durable=False)
    ids = {row[0] for row in ledger._db.execute("SELECT id FROM incidents")}
    assert ids == {incident.id, *(f"{n:016x}" for n in (3, 4, 5))}
    ledger.write(Batch({"z": replace(incident, id="z", closed=5 * day + 90 * day + 1)}), durable=False)
    ids = {row[0] for row in ledger._db.execute("SELECT id FROM incidents")}
    assert ids == {incident.id, "z"}
    assert {row[0] for row in ledger._db.execute("SELECT incident FROM deliveries")} == {incident.id}
    assert {row[0] for row in ledger._db.execute("SELECT incident FROM notices")} == {incident.id}


def test_history_by_engine_state_and_time(path, ledger, story, verdict):
    """Newest first, while the writer has the file open."""
    desk = Desk(ledger, [], Policy())
    story.page(desk)
    story.end(desk)
    story.tell(desk, verdict(), engine="http://other")
    first, second = sorted(desk.incidents, key=lambda i: i.opened)
    assert first.closed is not None
    assert ask(path, Question()) == (second, first)
    assert ask(path, Question(engine="http://other")) == (second,)
    assert ask(path, Question(states=("closed",))) == (first,)
    assert ask(path, Question(states=("suspected", "confirmed"))) == (second,)
    assert ask(path, Question(since=first.closed)) == (second, first)
    assert ask(path, Question(since=first.closed + 1)) == (second,)
    assert ask(path, Question(until=second.opened)) == (first,)
    assert ask(path, Question(limit=1)) == (second,)
    assert find(path, first.id) == first
    assert find(path, "'; DROP TABLE incidents; --") is None
    assert ask(path, Question(engine="' OR 1=1 --")) == ()
