"""What is told of an incident, and what is not."""

from __future__ import annotations

import json

import pytest

from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.notification import Notification, Status
from diagnose.alerts.routing import Route, receivers
from diagnose.alerts.wording import body, title
from diagnose.incident import Policy
from diagnose.model import Class, Severity


@pytest.fixture
def desk(tmp_path):
    ledger = Ledger(tmp_path / "i.db")
    yield Desk(ledger, [Route("r")], Policy(), external_url="https://s/")
    ledger.close()


def last(desk):
    (found,) = desk.outbox.notices.values()
    return found


def test_a_suspicion_tells_nobody(desk, story, verdict):
    """One window is not enough."""
    story.tell(desk, verdict())
    assert desk.outbox.notices == {}


def test_the_page_says_what_why_and_what_to_do(desk, story, verdict):
    """Verdict, rank, share, confidence, remedy, runbook, link."""
    story.page(desk)
    notice = last(desk)
    assert (notice.version, notice.status, notice.started) == (1, Status.FIRING, 1_000_010.0)
    assert title(notice) == "slow_rank, rank 3, 20% of step time, on http://e:30000"
    assert body(notice) == (
        "slow_rank found. single-point, rank 3, 20% of step time, confidence 90%. What to do: Do this. "
        f"Runbook: slowrank explain slow_rank. https://s/incidents/{notice.incident}"
    )


def test_the_end_says_how_long_it_was_and_what_it_cost_at_most(desk, story, verdict):
    """From the first window that found it to the last: 20 s later, not when the cool-down is over."""
    story.page(desk)
    story.tell(desk, verdict(share=0.4))
    story.end(desk)
    notice = last(desk)
    assert (notice.version, notice.status) == (2, Status.RESOLVED)
    assert title(notice) == "Resolved: slow_rank, rank 3, on http://e:30000"
    assert "It was there for 20 s and cost 40% of step time at most." in body(notice)


def test_a_return_is_not_told(desk, story, verdict, healthy):
    """It cleared for longer than the policy's 120 s and came back, and the quiet time is over too: the same page still stands."""
    story.page(desk)
    story.tell(desk, healthy, 40)
    events = story.tell(desk, verdict(), 2)
    assert [e.what for e in events] == ["it came back after it had cleared"]
    assert last(desk).version == 1


@pytest.mark.parametrize(("klass", "version"), [(Class.SINGLE_POINT, 2), (Class.LOAD, 1), (Class.STRUCTURAL, 1)])
def test_other_ranks_are_told_of_a_single_point_only(desk, story, verdict, klass, version):
    """A load shows here and there by itself; a second bad rank is news."""
    story.page(desk, klass=klass)
    story.tell(desk, verdict(klass=klass, ranks=(3, 5)))
    assert last(desk).version == version


def test_a_better_name_is_told_and_the_identity_stays(desk, story, verdict):
    """The cause is in the text, the labels are those of the page."""
    story.page(desk)
    before = last(desk).labels()
    story.tell(desk, verdict("host_cpu_starved"))
    notice = last(desk)
    assert (notice.version, notice.cause, notice.runbook) == (2, "host_cpu_starved", "slowrank explain host_cpu_starved")
    assert "slow_rank is now known as host_cpu_starved." in body(notice)
    assert notice.labels() == before


def test_a_severity_that_rises_makes_another_alert_and_one_that_falls_does_not(desk, story, verdict):
    """Who slept through the ticket is woken; the page is not taken back."""
    story.page(desk, severity=Severity.TICKET)
    story.tell(desk, verdict(severity=Severity.PAGE))
    notice = last(desk)
    assert (notice.severity, notice.formerly, notice.version) == (Severity.PAGE, (Severity.TICKET,), 2)
    story.tell(desk, verdict(severity=Severity.NOTE), 60)
    assert (last(desk).severity, last(desk).version) == (Severity.PAGE, 2)


def test_silence_is_told_once_and_not_for_ever(desk, story, verdict):
    """After 300 s without a verdict the message says so; the next verdict takes it back."""
    story.page(desk)
    desk.age(story.now + 301)
    desk.age(story.now + 302)
    assert last(desk).version == 2
    assert "No data since 1970-01-12 13:47:00 UTC, so it may be over." in body(last(desk))
    story.now += 400
    story.tell(desk, verdict())
    assert "No data" not in body(last(desk))


def test_the_numbers_of_now_are_in_the_message_without_a_new_version(desk, story, verdict):
    """For receivers that are told again and again."""
    story.page(desk)
    story.tell(desk, verdict(share=0.4))
    assert (last(desk).share, last(desk).version) == (0.4, 1)


def test_a_notification_survives_json(notice):
    """Plain values there and back."""
    for made in (notice(), notice(formerly=(Severity.NOTE,), ended=5.0, status=Status.RESOLVED, ranks=(), share=None, silent_since=3.0)):
        assert Notification.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_routes(notice):
    """Severity and class both have to fit; nothing said means everything; a receiver of two routes is told once."""
    page = Route("pager", frozenset({Severity.PAGE}))
    load = Route("router-team", classes=frozenset({Class.LOAD}))
    everything = Route("chat")
    routes = (page, load, everything, everything)
    assert receivers(routes, notice()) == ("pager", "chat")
    assert receivers(routes, notice(severity=Severity.TICKET, klass=Class.LOAD)) == ("router-team", "chat")
    assert receivers((), notice()) == ()


def test_an_engines_own_labels_go_with_its_alerts_and_stay_as_first_told(tmp_path, story):
    """A cluster or a team, for routing: they never replace a label of ours, and a change of them while it is on makes no other alert."""
    labels = [("cluster", "eu"), ("severity", "mine")]
    ledger = Ledger(tmp_path / "l.db")
    desk = Desk(ledger, [Route("r")], Policy(), labels=lambda engine: tuple(labels))
    story.page(desk)
    (told,) = desk.outbox.notices.values()
    assert told.labels()["cluster"] == "eu"
    assert told.labels()["severity"] == "page"
    labels[0] = ("cluster", "us")
    story.end(desk)
    ledger.close()
    (over,) = desk.outbox.notices.values()
    assert over.version > told.version
    assert over.labels() == told.labels()
    assert Notification.from_json(json.loads(json.dumps(over.to_json()))) == over
    assert Notification.from_json({k: v for k, v in told.to_json().items() if k != "more"}).more == ()
