"""Whatever fails in whatever order, every receiver ends up with every incident's newest state."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from diagnose.alerts.notification import Notification, Status
from diagnose.alerts.outbox import LAST_WORDS, LIMIT, RESEND, Outbox
from diagnose.model import Class, Severity

RECEIVERS = {"forgets": True, "keeps": False}
INCIDENTS = ("a", "b", "c")

which = st.sampled_from(INCIDENTS)
who = st.sampled_from(sorted(RECEIVERS))


def make(incident: str, version: int = 1, status: Status = Status.FIRING, severity: Severity = Severity.PAGE) -> Notification:
    return Notification(
        incident, version, status, "e", Class.LOAD, "c", (), severity, (), "c", (), None, None, 1.0, "", "", "", "", "", 0.0, 0.0, 0.0
    )


class Deliveries(RuleBasedStateMachine):
    """A model: the newest state of each incident, and what each receiver took, against the outbox. A restart loses what is not on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox, self.now = Outbox(), 0.0
        self.newest: dict[str, Notification] = {}
        self.took: dict[tuple[str, str], Notification] = {}
        self.heard: dict[str, list[Notification]] = {name: [] for name in RECEIVERS}

    @rule(incident=which, ends=st.booleans())
    def post(self, incident, ends):
        """A new state, unless the incident is over: then there are none."""
        before = self.newest.get(incident)
        if (before is not None and not before.firing) or (before is None and ends):
            return
        made = make(incident, 1 if before is None else before.version + 1, Status.RESOLVED if ends else Status.FIRING)
        self.newest[incident] = made
        self.outbox.post(made, list(RECEIVERS))

    def take(self, receiver, sent):
        self.took[receiver, sent.incident] = sent
        self.heard[receiver].append(sent)
        self.outbox.delivered(receiver, sent, self.now)
        self.outbox.settle(receiver, standing=RECEIVERS[receiver])

    @rule(receiver=who)
    def deliver(self, receiver):
        """What is next arrives."""
        sent = self.outbox.next(receiver, self.now, standing=RECEIVERS[receiver])
        if sent is not None:
            self.take(receiver, sent)

    @rule(receiver=who)
    def fail(self, receiver):
        """What is next does not arrive."""
        sent = self.outbox.next(receiver, self.now, standing=RECEIVERS[receiver])
        if sent is not None:
            self.outbox.failed(receiver, sent)

    @rule(receiver=who, incident=which, ends=st.booleans())
    def post_while_in_flight(self, receiver, incident, ends):
        """A new state comes while an older one is on its way: it stays owed when the older one arrives."""
        sent = self.outbox.next(receiver, self.now, standing=RECEIVERS[receiver])
        self.post(incident=incident, ends=ends)
        if sent is not None:
            self.take(receiver, sent)

    @rule(seconds=st.floats(0.0, 120.0))
    def wait(self, seconds):
        """Time goes by."""
        self.now += seconds

    @rule()
    def restart(self):
        """Only what is on disk comes back: the newest states, and who took which version."""
        again = Outbox()
        for notice in self.outbox.notices.values():
            again.refresh(notice)
            for receiver in RECEIVERS:
                if any(notice.incident == held for held in self.outbox._slots.get(receiver, {})):
                    again.restore(receiver, notice.incident, self.outbox.told(receiver, notice.incident))
        self.outbox = again

    @invariant()
    def versions_only_rise(self):
        """No receiver is ever told an older state after a newer one: a page never follows its all-clear."""
        for heard in self.heard.values():
            for incident in INCIDENTS:
                versions = [n.version for n in heard if n.incident == incident]
                assert versions == sorted(versions)

    def teardown(self):
        """Once everything arrives, each receiver's last word of each incident is its newest state."""
        for receiver, standing in RECEIVERS.items():
            for _ in range(len(INCIDENTS) * 3):
                sent = self.outbox.next(receiver, self.now, standing=standing)
                if sent is None:
                    break
                self.take(receiver, sent)
            assert {i: self.took[receiver, i] for i in self.newest} == self.newest


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def drain(outbox, receiver="r", now=0.0, standing=False):
    out = []
    while (sent := outbox.next(receiver, now, standing=standing)) is not None:
        outbox.delivered(receiver, sent, now)
        out.append(sent)
    return out


def test_a_page_that_was_never_delivered_is_not_sent_before_its_end():
    """Only the newest state is owed: one message, the end."""
    outbox = Outbox()
    outbox.post(make("a"), ["r"])
    outbox.post(make("a", 2, Status.RESOLVED), ["r"])
    assert [n.version for n in drain(outbox)] == [2]


def test_the_end_goes_to_who_heard_of_the_start_and_to_nobody_else():
    """A route that would match only now makes no message about something that is over."""
    outbox = Outbox()
    outbox.post(make("a"), ["r"])
    assert outbox.post(make("a", 2, Status.RESOLVED), ["new"]) == ("r",)
    assert drain(outbox, "new") == []


def test_pages_go_first_and_one_that_fails_lets_others_by():
    """By severity, then by age; after three failures of a message the next one is tried."""
    outbox = Outbox()
    outbox.post(make("t", severity=Severity.TICKET), ["r"])
    outbox.post(make("p"), ["r"])
    for _ in range(3):
        sent = outbox.next("r", 0.0, standing=False)
        assert sent is not None
        assert sent.incident == "p"
        outbox.failed("r", sent)
    assert [n.incident for n in drain(outbox)] == ["t", "p"]


def test_a_receiver_that_forgets_is_told_every_minute_and_the_end_for_a_quarter_of_an_hour():
    """At 0 s and each 60 s while it lasts; then the end and 15 more, then nothing."""
    outbox, told = Outbox(), []
    outbox.post(make("a"), ["r"])
    for second in range(1800):
        if second == 150:
            outbox.post(make("a", 2, Status.RESOLVED), ["r"])
        told += [(second, n.firing) for n in drain(outbox, now=float(second), standing=True)]
        outbox.settle("r", standing=True)
    assert [s for s, firing in told if firing] == [0, 60, 120]
    assert [s for s, firing in told if not firing] == [150 + int(RESEND) * n for n in range(LAST_WORDS + 1)]
    assert outbox.holders() == set()


def test_a_refused_message_is_not_owed_and_the_next_one_is():
    """Until there is something newer, nothing."""
    outbox = Outbox()
    outbox.post(make("a"), ["r"])
    outbox.refused("r", make("a"), 0.0)
    assert drain(outbox) == []
    outbox.post(make("a", 2), ["r"])
    assert [n.version for n in drain(outbox)] == [2]


@pytest.mark.parametrize("beyond", [0, 5])
def test_what_a_dead_receiver_is_owed_is_bounded(beyond):
    """Ended incidents beyond the limit are given up, the oldest first, and counted; what is on is never given up."""
    outbox = Outbox()
    outbox.post(make("on"), ["r"])
    for n in range(LIMIT + beyond):
        outbox.post(make(f"i{n}"), ["r"])
        outbox.post(replace(make(f"i{n}"), version=2, status=Status.RESOLVED), ["r"])
    owed = {n.incident for n in outbox.pending("r")}
    assert owed == {"on", *(f"i{n}" for n in range(beyond, LIMIT + beyond))}
    assert outbox.given_up.get("r", 0) == beyond
