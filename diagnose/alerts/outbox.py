"""What each receiver still has to be told. In memory and without IO; `diagnose/alerts/ledger.py` keeps it on disk.

There is one slot per receiver and incident, not one per message: what is owed is the incident's newest state. An older message that was
never delivered is thereby gone once a newer one is posted, and an end is owed until it is delivered, whatever happened before.
Moments are of a steady clock (seconds of any origin), so that setting the wall clock neither hastens nor holds a message.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from diagnose.alerts.notification import LOUDER, Notification

RESEND = 60.0
"""s between two tellings of a receiver that forgets: Prometheus' default (--rules.alert.resend-delay), which Alertmanager is built for."""

LAST_WORDS = 15
"""Times that an end is told again to a receiver that forgets: a quarter of an hour, as Prometheus does. An Alertmanager that restarts
between hearing of the end and passing it on would else never pass it on."""

PATIENCE = 3
"""Failed tries of one message after which others go first: one that a receiver chokes on must not hold up the rest."""

LIMIT = 1000
"""Ended incidents that a receiver may be owed; beyond, the oldest is given up, and counted. At the 12 minutes that an incident lasts at
least, one engine takes eight days of outage to get there."""


@dataclass(slots=True)
class Slot:
    """One receiver and one incident. `order` is that of the posting."""

    order: int
    delivered: int = 0  # the newest version that it took
    refused: int = 0  # the newest version that it will not take
    tries: int = 0  # of the newest version, that failed
    told_again_at: float = -math.inf  # a receiver that forgets: not before
    last_words: int = LAST_WORDS


class Outbox:
    """Newest states, and who has which. Not safe for threads: one event loop owns it."""

    def __init__(self) -> None:
        self.notices: dict[str, Notification] = {}
        self.given_up: dict[str, int] = {}  # receiver -> ended incidents that it was never told of
        self._slots: dict[str, dict[str, Slot]] = {}
        self._order = 0

    def post(self, notification: Notification, receivers: Collection[str]) -> tuple[str, ...]:
        """Owe the newest state to `receivers`, and to all that were owed or told an older one: who heard of a start hears of the end.

        The end of an incident that a receiver was never owed makes no slot. Returns the receivers that are owed.
        """
        incident = notification.incident
        self.notices[incident] = notification
        self._order += 1
        fresh = [r for r in receivers if notification.firing and incident not in self._slots.get(r, {})]
        for receiver in fresh:
            self._slots.setdefault(receiver, {})[incident] = Slot(self._order)
        owed = tuple(receiver for receiver, slots in self._slots.items() if incident in slots)
        for receiver in owed:
            slot = self._slots[receiver][incident]
            slot.order, slot.tries = self._order, 0
            self._make_room(receiver)
        return owed

    def restore(self, receiver: str, incident: str, delivered: int) -> None:
        """Put back a slot that was kept on disk. Its notice must be there."""
        self._order += 1
        self._slots.setdefault(receiver, {})[incident] = Slot(self._order, delivered)

    def refresh(self, notification: Notification) -> None:
        """Newer numbers for the same message."""
        self.notices[notification.incident] = notification

    def next(self, receiver: str, now: float, *, standing: bool) -> Notification | None:
        """What to tell the receiver now, most urgent first: pages before tickets, then by age. None: nothing yet."""
        due = [(slot, n) for slot, n in self._of(receiver) if _owed(slot, n) or (standing and _due_again(slot, n, now))]
        return min(due, key=_urgency)[1] if due else None

    def wait(self, receiver: str, now: float, *, standing: bool) -> float:
        """Seconds until `next` has something, if nothing is posted; infinite when nothing will come."""
        if self.next(receiver, now, standing=standing) is not None:
            return 0.0
        times = [slot.told_again_at for slot, n in self._of(receiver) if standing and _goes_on(slot, n)]
        return max(0.0, min(times, default=math.inf) - now)

    def delivered(self, receiver: str, sent: Notification, now: float) -> None:
        """The receiver took `sent`. A newer state that was posted meanwhile stays owed."""
        slot = self._slots.get(receiver, {}).get(sent.incident)
        if slot is None:
            return
        if slot.delivered == sent.version and not sent.firing:
            slot.last_words -= 1
        slot.delivered = max(slot.delivered, sent.version)
        slot.told_again_at = now + RESEND

    def failed(self, receiver: str, sent: Notification) -> None:
        """The receiver did not take `sent` now."""
        slot = self._slots.get(receiver, {}).get(sent.incident)
        if slot is not None:
            slot.tries += 1

    def refused(self, receiver: str, sent: Notification, now: float) -> None:
        """The receiver will not take `sent`: it is not owed any longer, newer versions will be."""
        slot = self._slots.get(receiver, {}).get(sent.incident)
        if slot is not None:
            slot.refused = max(slot.refused, sent.version)
            slot.told_again_at = now + RESEND

    def settle(self, receiver: str, *, standing: bool) -> None:
        """Forget the ended incidents about which the receiver has nothing more to hear."""
        for incident, slot in tuple(self._slots.get(receiver, {}).items()):
            notice = self.notices[incident]
            if not notice.firing and not _owed(slot, notice) and not (standing and _goes_on(slot, notice)):
                self._drop(receiver, incident)

    def forget_told(self) -> None:
        """Drop the notices of ended incidents that nobody is owed."""
        held = {incident for slots in self._slots.values() for incident in slots}
        self.notices = {i: n for i, n in self.notices.items() if n.firing or i in held}

    def told(self, receiver: str, incident: str) -> int:
        """The newest version that the receiver took of an incident that it is told of; 0 for none."""
        return self._slots[receiver][incident].delivered

    def pending(self, receiver: str) -> list[Notification]:
        """What it is owed."""
        return [notice for slot, notice in self._of(receiver) if _owed(slot, notice)]

    def holders(self) -> set[str]:
        """The receivers that have slots, whether they are still configured or not."""
        return {receiver for receiver, slots in self._slots.items() if slots}

    def _of(self, receiver: str) -> Iterator[tuple[Slot, Notification]]:
        for incident, slot in self._slots.get(receiver, {}).items():
            yield slot, self.notices[incident]

    def _make_room(self, receiver: str) -> None:
        ended = [i for i, slot in self._slots[receiver].items() if not self.notices[i].firing and _owed(slot, self.notices[i])]
        for incident in sorted(ended, key=lambda i: self._slots[receiver][i].order)[: max(0, len(ended) - LIMIT)]:
            self._drop(receiver, incident)
            self.given_up[receiver] = self.given_up.get(receiver, 0) + 1

    def _drop(self, receiver: str, incident: str) -> None:
        del self._slots[receiver][incident]


def _owed(slot: Slot, notice: Notification) -> bool:
    return notice.version > max(slot.delivered, slot.refused)


def _goes_on(slot: Slot, notice: Notification) -> bool:
    """Whether a receiver that forgets will have to hear it once more."""
    return notice.firing or (slot.delivered == notice.version and slot.last_words > 0)


def _due_again(slot: Slot, notice: Notification, now: float) -> bool:
    return _goes_on(slot, notice) and now >= slot.told_again_at


def _urgency(due: tuple[Slot, Notification]) -> tuple[bool, int, int, int]:
    slot, notice = due
    return not _owed(slot, notice), max(0, slot.tries - PATIENCE + 1), -LOUDER[notice.severity], slot.order
