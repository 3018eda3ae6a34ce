"""Delivery under trouble, on a clock that stands still: nothing here waits."""

from __future__ import annotations

import asyncio
import itertools
import math
import random

import pytest

from diagnose.alerts.alertmanager import HOLD, Alertmanager
from diagnose.alerts.courier import LONGEST_PAUSE, Courier
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.pagerduty import PagerDuty
from diagnose.alerts.receiver import Again, Delivered, Gone, Refused
from diagnose.alerts.routing import Route
from diagnose.alerts.secret import Secret
from diagnose.alerts.webhook import Webhook
from diagnose.incident import Policy

HOOK = Webhook.at("hook", "http://hook/x")
PAGER = PagerDuty.with_key("pager", Secret("K"), "http://pager/x")
MANAGER = Alertmanager.at("manager", "http://manager")


class Bench:
    """A desk and a courier whose receivers answer as `answers` says by host; what was taken is in `took`, every try in `tries`."""

    def __init__(self, path, clock, *receivers):
        self.ledger = Ledger(path)
        self.desk = Desk(self.ledger, [Route(r.name) for r in receivers], Policy())
        self.clock, self.answers = clock, {}
        self.took, self.tries = [], []
        self.courier = Courier(
            self.desk, receivers, self.send, steady=lambda: clock.steady, wall=lambda: clock.wall, jitter=random.Random(1)
        )

    async def send(self, post):
        host = post.url.reveal().split("/")[2]
        answer = self.answers.get(host, Delivered())
        self.tries.append((self.clock.steady, host))
        if isinstance(answer, Delivered):
            self.took.append((self.clock.steady, host, post))
        return answer

    def settle(self, seconds=0.0):
        """Let every line do what is due during `seconds`, second by second."""

        async def play():
            end = self.clock.steady + seconds
            while True:
                for line in self.courier.lines:
                    while await self.courier.turn(line) == 0.0:
                        pass
                if self.clock.steady >= end:
                    return
                self.clock.pass_(1.0)

        asyncio.run(play())

    def heard(self, host):
        return [post for _, h, post in self.took if h == host]


@pytest.fixture
def bench(tmp_path, clock):
    made = []

    def make(*receivers):
        made.append(Bench(tmp_path / "i.db", clock, *receivers))
        return made[-1]

    yield make
    for each in made:
        each.ledger.close()


def events(bench, host="pager"):
    import json

    return [(e["event_action"], e["dedup_key"]) for e in (json.loads(p.body) for p in bench.heard(host))]


def test_a_receiver_that_was_down_for_ten_minutes_gets_one_page(bench, story):
    """Within the longest pause after it is back, and with few tries: two in a minute on average once the back-off has grown."""
    b = bench(PAGER)
    story.page(b.desk)
    b.answers["pager"] = Again("pager cannot be reached")
    b.settle(600)
    assert b.took == []
    assert 10 <= len(b.tries) <= 60
    assert "cannot be reached" in b.courier.problems()[0].what
    b.answers.clear()
    b.settle(LONGEST_PAUSE + 1)
    (incident,) = b.desk.incidents
    assert events(b) == [("trigger", incident.id)]
    assert b.courier.problems() == ()
    b.settle(3600)
    assert len(b.tries) <= 61


def test_an_incident_that_ended_in_the_outage_is_told_as_ended_only(bench, story):
    """A page for what is over would wake someone for nothing; that it was there is told."""
    b = bench(PAGER)
    b.answers["pager"] = Again("down")
    story.page(b.desk)
    b.settle(100)
    story.end(b.desk)
    b.answers.clear()
    b.settle(LONGEST_PAUSE + 1)
    assert [action for action, _ in events(b)] == ["resolve"]


def test_one_page_for_a_thousand_flaps(bench, story, verdict, healthy):
    """Gone for 130 s and back for 20 s, a thousand times, past every quiet time: one trigger, and one resolve when it is over."""
    b = bench(PAGER, HOOK)
    for _ in range(1000):
        story.tell(b.desk, verdict(), 2)
        story.tell(b.desk, healthy, length=130.0)
        b.settle()
    (incident,) = b.desk.incidents
    assert incident.returns == 999
    assert events(b) == [("trigger", incident.id)]
    assert len(b.heard("hook")) == 1
    story.end(b.desk)
    b.settle()
    assert events(b) == [("trigger", incident.id), ("resolve", incident.id)]
    assert len(b.heard("hook")) == 2


def test_retry_after_is_honoured(bench, story):
    """Nothing before the 120 s that a 429 asked for."""
    b = bench(PAGER)
    story.page(b.desk)
    b.answers["pager"] = Again("pager answered 429", after=120.0)
    b.settle(1)
    b.answers.clear()
    b.settle(118)
    assert len(b.tries) == 1
    b.settle(2)
    assert [t for t, _ in b.tries] == [0.0, 120.0]


def test_the_pauses_grow_to_a_minute_and_are_spread(bench, story):
    """Full jitter: the n-th pause lies anywhere between nothing and 2^n s, never above a minute."""
    b = bench(PAGER)
    story.page(b.desk)
    b.answers["pager"] = Again("pager answered 500")
    line, pauses = b.courier.lines[0], []
    for _ in range(200):
        b.clock.pass_(1000.0)
        pauses.append(asyncio.run(b.courier.turn(line)))
    assert all(pause <= min(LONGEST_PAUSE, 2.0**n) for n, pause in enumerate(pauses))
    assert min(pauses[6:]) < LONGEST_PAUSE / 10
    assert max(pauses) > LONGEST_PAUSE * 0.9
    assert 24 < sum(pauses[6:]) / 194 < 36  # the mean of a uniform on 0 to 60 is 30, its error 60 / sqrt(12 * 194) = 1.2


def test_a_dead_receiver_holds_up_no_other(bench, story):
    """Each has its own line."""
    b = bench(PAGER, HOOK)
    b.answers["pager"] = Again("dead")
    for n in range(5):
        story.page(b.desk, cause=f"cause{n}", ranks=(n,))
        b.settle()
    assert len({p.headers["webhook-id"] for p in b.heard("hook")}) == len(b.heard("hook")) == 5


def test_a_slow_receiver_holds_up_no_other(bench, story):
    """With one post that never ends, the other line delivers; run() is the real loop."""
    b = bench(HOOK, PAGER)
    story.page(b.desk)
    taken = asyncio.Event()

    async def send(post):
        if "hook" in post.url.reveal():
            await asyncio.Event().wait()
        taken.set()
        return Delivered()

    b.courier._send = send

    async def play():
        running = asyncio.create_task(b.courier.run())
        async with asyncio.timeout(10):
            await taken.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())
    assert [len(b.desk.outbox.pending(name)) for name in ("hook", "pager")] == [1, 0]


def test_gone_is_left_alone_and_said(bench, story):
    """410: one try, a problem with what to do, the other receiver unharmed, nothing lost if it is configured anew."""
    b = bench(PAGER, HOOK)
    b.answers["pager"] = Gone("pager answered 410")
    story.page(b.desk)
    b.settle(600)
    assert [host for _, host in b.tries].count("pager") == 1
    assert len(b.heard("hook")) == 1
    assert [str(p) for p in b.courier.problems()] == [
        "pager: pager answered 410; nothing is sent there; configure the address that took its place"
    ]
    assert [s.disabled for s in b.courier.status()] == [True, False]
    again = PagerDuty.with_key("pager", Secret("NEW"), "http://new/x")
    moved = Courier(b.desk, [again], b.send, steady=lambda: b.clock.steady)
    asyncio.run(moved.turn(moved.lines[0]))
    assert events(b, "new")[0][0] == "trigger"


def test_a_refused_message_is_left_and_its_end_is_sent(bench, story):
    """400: no second try of the same, a problem, and the next state goes out."""
    b = bench(PAGER)
    b.answers["pager"] = Refused("pager answered 400")
    story.page(b.desk)
    b.settle(600)
    assert len(b.tries) == 1
    assert "answered 400" in b.courier.problems()[0].what
    b.answers.clear()
    story.end(b.desk)
    b.settle()
    assert [action for action, _ in events(b)] == ["resolve"]


def test_a_receiver_that_cannot_be_written_for_stops_no_other(bench, story, caplog):
    """A defect in one file is said, with the others delivering."""

    class Broken(Webhook):
        def post(self, notification, now):
            raise ZeroDivisionError

    b = bench(Broken.at("broken", "http://broken/x"), HOOK)
    story.page(b.desk)
    b.settle()
    assert len(b.heard("hook")) == 1
    assert "ZeroDivisionError" in b.courier.problems()[0].what


def test_alertmanager_is_told_again_in_time(bench, story):
    """Every minute while it lasts, so that the hold never runs out; its end 16 times, then nothing."""
    b = bench(MANAGER)
    story.page(b.desk)
    b.settle(300)
    assert [t for t, _ in b.tries] == [0.0, 60.0, 120.0, 180.0, 240.0, 300.0]
    b.answers["manager"] = Again("down")
    b.settle(600)
    b.answers.clear()
    b.settle(LONGEST_PAUSE + 1)
    times = [t for t, _, _ in b.took]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) < HOLD
    story.end(b.desk)
    count = len(b.took)
    b.settle(3600)
    assert len(b.took) == count + 16
    assert b.desk.outbox.holders() == set()


@pytest.mark.parametrize("jump", [-7200.0, 7200.0])
def test_a_clock_that_is_set_neither_hastens_nor_holds(bench, story, jump):
    """Pauses are counted on the steady clock: two hours back or ahead change no try."""
    b = bench(PAGER)
    story.page(b.desk)
    b.answers["pager"] = Again("429", after=60.0)
    b.settle(1)
    b.answers.clear()
    b.clock.wall += jump
    b.settle(60)
    assert [t for t, _ in b.tries] == [0.0, 60.0]


def test_a_newer_state_that_comes_while_the_older_is_on_its_way_is_sent_too(bench, story):
    """The answer to the older one does not count for the newer."""
    b = bench(PAGER)
    story.page(b.desk)
    plain = b.send

    async def send(post):
        b.courier._send = plain
        story.end(b.desk)
        return await plain(post)

    b.courier._send = send
    b.settle()
    assert [action for action, _ in events(b)] == ["trigger", "resolve"]


def test_nothing_to_do_waits_for_news(bench, story):
    """No polling: the pause is infinite until something is posted, which wakes the line."""
    b = bench(PAGER)
    line = b.courier.lines[0]
    assert asyncio.run(b.courier.turn(line)) == math.inf
    assert not line.news.is_set()
    story.page(b.desk)
    assert line.news.is_set()


def test_a_receiver_that_left_the_configuration_with_debts_is_named(bench, story, tmp_path):
    """Its incidents stay on over there: someone has to end them."""
    b = bench(PAGER, HOOK)
    b.answers["pager"] = Again("down")
    story.page(b.desk)
    b.settle()
    only = Courier(b.desk, [HOOK], b.send)
    assert [p.where for p in only.problems()] == ["pager"]
