"""Who is told of what: receivers by severity and class. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from diagnose.alerts.notification import Notification
from diagnose.model import Class, Severity


@dataclass(frozen=True, slots=True)
class Route:
    """A receiver's name and what it wants to hear. Empty: everything."""

    receiver: str
    severities: frozenset[Severity] = frozenset()
    classes: frozenset[Class] = frozenset()

    def wants(self, notification: Notification) -> bool:
        """Whether the notification goes there."""
        severity = not self.severities or notification.severity in self.severities
        return severity and (not self.classes or notification.klass in self.classes)


def receivers(routes: Iterable[Route], notification: Notification) -> tuple[str, ...]:
    """The receivers of a notification, each once. That one which heard of an incident also hears of its end is the outbox's part."""
    return tuple(dict.fromkeys(route.receiver for route in routes if route.wants(notification)))
