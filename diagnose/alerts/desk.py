"""Where a verdict becomes an incident, the incident a message, and all of it one transaction.

Memory leads and the disk follows: when the file cannot be written (no space, say), incidents go on, alerts go out, and what was not
written is kept until it can be. Only what happens in such a time is lost if the process dies in it too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence

from collector.model import Problem
from diagnose.alerts.ledger import Batch, Ledger
from diagnose.alerts.notification import Notification, compose, refreshed
from diagnose.alerts.outbox import Outbox
from diagnose.alerts.receiver import Receiver
from diagnose.alerts.routing import Route, receivers
from diagnose.incident import Event, Incident, Policy, advance, age, leave
from diagnose.model import EngineDiagnosis


class Desk:
    """The incidents of all engines of one service. Not safe for threads: one event loop owns it."""

    def __init__(
        self,
        ledger: Ledger,
        routes: Sequence[Route],
        policy: Policy,
        *,
        external_url: str = "",
        labels: Callable[[str], tuple[tuple[str, str], ...]] = lambda _: (),
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes up what the file holds. `external_url` is where people reach this service, `labels` are an engine's own, by its id; `wake`
        is called when something is to be sent.

        Raises sqlite3.Error when the file cannot be read.
        """
        self.outbox = Outbox()
        self.wake = wake
        self._ledger, self._routes, self._policy, self._external_url = ledger, tuple(routes), policy, external_url
        self._labels = labels
        self._unsaved = Batch()
        self._trouble: Problem | None = None
        held = ledger.load(policy.closed_limit)
        self.incidents: tuple[Incident, ...] = held.incidents
        self._gone = held.gone
        self._unreadable = held.problems
        for notice in held.notices:
            self.outbox.refresh(notice)
        for (receiver, incident), delivered in held.deliveries.items():
            self.outbox.restore(receiver, incident, delivered)
        for notice in held.notices:  # a receiver that is new in the configuration hears of what is on
            if notice.firing:
                self._post(notice)
        self.flush(durable=False)

    def hear(self, diagnosis: EngineDiagnosis) -> tuple[Event, ...]:
        """Work one verdict in; what happened."""
        after, events = advance(self.incidents, diagnosis, self._policy)
        self._take(after, events, diagnosis)
        return events

    def age(self, now: float) -> tuple[Event, ...]:
        """Say what has had no verdict for too long. `now` is unix seconds."""
        after, events = age(self.incidents, now, self._policy)
        self._take(after, events, None)
        return events

    def leave(self, engine: str, now: float) -> tuple[Event, ...]:
        """End what is open of an engine that is watched no longer. `now` is unix seconds."""
        after, events = leave(self.incidents, engine, now, self._policy)
        self._take(after, events, None)
        return events

    def delivered(self, receiver: str, sent: Notification) -> None:
        """Keep that the receiver took it. Lost in a crash, it is sent again under the same key."""
        self._unsaved.deliveries[receiver, sent.incident] = sent.version
        self.flush(durable=False)

    def disable(self, receiver: Receiver, why: str) -> None:
        """The receiver is gone (410), until it is configured as another place."""
        self._mark(receiver.name, (receiver.fingerprint, why))

    def disabled(self, receiver: Receiver) -> str | None:
        """Why nothing is sent there, or None. A receiver that was configured anew is tried again."""
        mark = self._gone.get(receiver.name)
        if mark is None:
            return None
        if mark[0] == receiver.fingerprint:
            return mark[1]
        self._mark(receiver.name, None)
        return None

    def flush(self, *, durable: bool = True) -> bool:
        """Write what is not written yet. Whether all is; if not, `problems` says why, and the next call tries again."""
        if not self._unsaved:
            return True
        try:
            self._ledger.write(self._unsaved, durable=durable or self._trouble is not None)
        except sqlite3.Error as error:
            then = "alerts go out, but would be lost with the process; make room, or mend the disk"
            self._trouble = Problem(str(self._ledger.path), f"cannot be written ({error}); {self._waiting()} not kept", then)
            return False
        self._unsaved, self._trouble = Batch(), None
        return True

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the file now."""
        return (*self._unreadable, *((self._trouble,) if self._trouble else ()))

    def _take(self, after: tuple[Incident, ...], events: Iterable[Event], diagnosis: EngineDiagnosis | None) -> None:
        before = {i.id: i for i in self.incidents}
        changed = {i.id: i for i in after if before.get(i.id) is not i and before.get(i.id) != i}
        self.incidents = after
        self._unsaved.incidents.update(changed)
        posted = False
        for event in events:
            last = self.outbox.notices.get(event.incident)
            incident = changed[event.incident]
            notice = compose(incident, event, last, diagnosis, self._external_url, self._labels(incident.engine))
            if notice is not None:
                self._post(notice)
                posted = True
        for incident in changed.values():
            last = self.outbox.notices.get(incident.id)
            if last is not None and last.firing and incident.open:
                self.outbox.refresh(refreshed(incident, last, diagnosis, self._external_url))
        self.outbox.forget_told()
        self.flush(durable=bool(events))
        if posted:
            self.wake()

    def _post(self, notice: Notification) -> None:
        owed = self.outbox.post(notice, receivers(self._routes, notice))
        self._unsaved.notices[notice.incident] = notice
        for receiver in owed:
            self._unsaved.deliveries[receiver, notice.incident] = self.outbox.told(receiver, notice.incident)

    def _mark(self, receiver: str, mark: tuple[str, str] | None) -> None:
        self._unsaved.gone[receiver] = mark
        if mark is None:
            del self._gone[receiver]
        else:
            self._gone[receiver] = mark
        self.flush()

    def _waiting(self) -> str:
        b = self._unsaved
        return f"{len(b.incidents)} incidents and {len(b.deliveries)} deliveries are"
