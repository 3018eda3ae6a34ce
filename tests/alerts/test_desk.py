"""Verdicts in, transactions out: no space, a restart, receivers that come and go."""

from __future__ import annotations

import resource
from contextlib import contextmanager

import pytest

from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.pagerduty import PagerDuty
from diagnose.alerts.routing import Route
from diagnose.alerts.secret import Secret
from diagnose.incident import Kind, Policy


@pytest.fixture
def path(tmp_path):
    return tmp_path / "i.db"


@contextmanager
def page_limit(ledger):
    """SQLite may not grow the file."""
    ledger._db.execute(f"PRAGMA max_page_count = {ledger._db.execute('PRAGMA page_count').fetchone()[0]}")
    yield
    ledger._db.execute("PRAGMA max_page_count = 1000000")


@contextmanager
def file_limit(ledger):
    """No file of this process may grow: what the kernel says is what it says of a full disk's quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("full", [page_limit, file_limit])
def test_no_space_stops_nothing_and_loses_nothing(path, story, verdict, full):
    """Incidents are confirmed and owed while nothing can be written; it is said; with space again the file holds all of it."""
    ledger = Ledger(path)
    desk = Desk(ledger, [Route("r")], Policy())
    with full(ledger):
        for n in range(12):
            story.tell(desk, verdict(), 2, engine=f"http://{'long' * 400}{n}")
        assert len(desk.outbox.pending("r")) == 12
        (problem,) = desk.problems()
        assert "cannot be written" in problem.what
        assert "12 deliveries" in problem.what or full is page_limit  # the first ones may still have fitted into free pages
    assert desk.flush()
    assert desk.problems() == ()
    kept = ledger.load(32)
    assert set(kept.incidents) == set(desk.incidents)
    assert len(kept.deliveries) == 12
    ledger.close()


def test_a_restart_continues_the_incident(path, story, verdict):
    """The same id, no second page, and its end is told."""
    first = Ledger(path)
    desk = Desk(first, [Route("r")], Policy())
    story.page(desk)
    (before,) = desk.incidents
    first.close()
    second = Ledger(path)
    desk = Desk(second, [Route("r")], Policy())
    assert desk.incidents == (before,)
    assert [e.kind for e in story.tell(desk, verdict(), 3)] == []
    story.end(desk)
    assert [(n.incident, n.version, n.firing) for n in desk.outbox.pending("r")] == [(before.id, 2, False)]
    second.close()


def test_a_receiver_that_is_new_hears_of_what_is_on(path, story):
    """Configured after the page went out; what is over is not told to it."""
    first = Ledger(path)
    desk = Desk(first, [Route("old")], Policy())
    story.page(desk)
    story.end(desk)
    story.page(desk, cause="stuck_rank", ranks=(1,))
    first.close()
    second = Ledger(path)
    desk = Desk(second, [Route("old"), Route("new")], Policy())
    assert [(n.cause, n.firing) for n in desk.outbox.pending("new")] == [("stuck_rank", True)]
    second.close()


def test_a_receiver_that_is_gone_stays_so_until_it_is_another(path):
    """Across a restart, by the address and key that it had."""
    old, new = PagerDuty.with_key("p", Secret("K1")), PagerDuty.with_key("p", Secret("K2"))
    first = Ledger(path)
    desk = Desk(first, [], Policy())
    assert desk.disabled(old) is None
    desk.disable(old, "h answered 410")
    first.close()
    second = Ledger(path)
    desk = Desk(second, [], Policy())
    assert desk.disabled(old) == "h answered 410"
    assert desk.disabled(new) is None
    second.close()
    third = Ledger(path)
    assert Desk(third, [], Policy()).disabled(new) is None
    third.close()


def test_a_desk_wakes_the_courier_for_messages_only(path, story, verdict):
    """Not for each verdict."""
    woken = []
    ledger = Ledger(path)
    desk = Desk(ledger, [Route("r")], Policy(), wake=lambda: woken.append(story.now))
    assert [e.kind for e in story.tell(desk, verdict())] == [Kind.OPENED]
    assert woken == []
    story.tell(desk, verdict(), 3)
    assert len(woken) == 1
    ledger.close()
