"""Alertmanager's v2 API: POST /api/v2/alerts. It forgets, so an alert is told again while it lasts, and its end for a while too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from diagnose.alerts.notification import Notification
from diagnose.alerts.receiver import Post, checked
from diagnose.alerts.secret import Secret
from diagnose.alerts.wording import details, rfc3339
from diagnose.report.plain import safe

HOLD = 900.0
"""s for which Alertmanager keeps an alert that is not told again. An outage of ten minutes, a minute of back-off after it and a minute
between two tellings must fit in, or the alert ends and pages a second time. Sent as endsAt, so resolve_timeout has no say."""


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """One Alertmanager; each of a cluster is a receiver of its own, as Prometheus has it."""

    name: str
    url: Secret
    standing: bool = True

    @classmethod
    def at(cls, name: str, url: str) -> Alertmanager:
        """`url` is its base, with a path prefix if it has one. ConfigError when it is no address."""
        base = checked(url, f"Alertmanager {name}").reveal().rstrip("/").removesuffix("/api/v2/alerts")
        return cls(name, Secret(f"{base}/api/v2/alerts"))

    @property
    def fingerprint(self) -> str:
        """Of its address."""
        return self.url.fingerprint

    def post(self, notification: Notification, now: float) -> Post:
        """The alert, and the end of those that it had under a lower severity."""
        n = notification
        # From when it fired, as Prometheus has it: Alertmanager skips group_wait for what started longer ago than that. A clock that was
        # set back must not put the start after the end, which is refused.
        started = min(n.fired, now)
        ended = max(started, min(n.ended if n.ended is not None else now, now))
        alerts = [_alert(n, n.labels(), started, now + HOLD if n.firing else ended)]
        alerts += [_alert(n, n.labels(severity), started, ended) for severity in n.formerly]
        return Post(self.url, {"content-type": "application/json"}, json.dumps(alerts).encode())


def _alert(notification: Notification, labels: dict[str, str], started: float, ended: float) -> dict[str, Any]:
    alert: dict[str, Any] = {
        "labels": {name: safe(value, 1000) for name, value in labels.items()},
        "annotations": details(notification),
        "startsAt": rfc3339(started),
        "endsAt": rfc3339(ended),
    }
    if notification.link:
        alert["generatorURL"] = notification.link
    return alert
