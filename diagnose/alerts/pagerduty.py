"""PagerDuty's Events API v2: trigger and resolve under one dedup_key, the incident's id. A second trigger updates, it pages nobody."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from diagnose.alerts.notification import Notification
from diagnose.alerts.receiver import Post, checked
from diagnose.alerts.secret import Secret
from diagnose.alerts.wording import details, rfc3339, title
from diagnose.model import Severity
from diagnose.report.plain import safe

ENDPOINT = "https://events.pagerduty.com/v2/enqueue"
_SEVERITY = {Severity.PAGE: "critical", Severity.TICKET: "warning", Severity.NOTE: "info"}


@dataclass(frozen=True, slots=True)
class PagerDuty:
    """One integration of a service, by its routing key."""

    name: str
    key: Secret
    url: Secret
    standing: bool = False

    @classmethod
    def with_key(cls, name: str, key: Secret, url: str = ENDPOINT) -> PagerDuty:
        """ConfigError when `url` is no address."""
        return cls(name, key, checked(url, f"PagerDuty {name}"))

    @property
    def fingerprint(self) -> str:
        """Of its key and address."""
        return self.key.fingerprint + self.url.fingerprint

    def post(self, notification: Notification, now: float) -> Post:  # noqa: ARG002 - the event has its own time
        """The event."""
        n = notification
        event: dict[str, Any] = {
            "routing_key": self.key.reveal(),
            "event_action": "trigger" if n.firing else "resolve",
            "dedup_key": n.incident,
            "client": "slowrank",
            "payload": {
                "summary": title(n),
                "source": safe(n.engine, 255) or "slowrank",
                "severity": _SEVERITY[n.severity],
                "timestamp": rfc3339(n.started),
                "component": safe(n.cause, 80),
                "class": n.klass.value,
                "custom_details": details(n),
            },
        }
        if n.link:
            event["client_url"] = n.link
            event["links"] = [{"href": n.link, "text": "the incident in slowrank"}]
        return Post(self.url, {"content-type": "application/json"}, json.dumps(event).encode(), (self.key,))
