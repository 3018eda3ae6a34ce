"""Slack's incoming webhooks: blocks with a header, one paragraph and a link. Slack keeps no state, so each message stands for itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from diagnose.alerts.notification import Notification
from diagnose.alerts.receiver import Post, checked
from diagnose.alerts.secret import Secret
from diagnose.alerts.wording import body, title

SECTION = 3000
"""Characters that a section's text may have, and HEADER those of a header (Slack's block reference)."""
HEADER = 150


@dataclass(frozen=True, slots=True)
class Slack:
    """One incoming webhook; its address is its key."""

    name: str
    url: Secret
    standing: bool = False

    @classmethod
    def at(cls, name: str, url: Secret) -> Slack:
        """ConfigError when it is no address."""
        return cls(name, checked(url.reveal(), f"Slack {name}"))

    @property
    def fingerprint(self) -> str:
        """Of its address."""
        return self.url.fingerprint

    def post(self, notification: Notification, now: float) -> Post:  # noqa: ARG002 - Slack stamps it
        """The message."""
        return Post(self.url, {"content-type": "application/json"}, json.dumps(payload(notification)).encode())


def payload(notification: Notification) -> dict[str, Any]:
    """`text` is what a phone shows. `verbatim` keeps Slack from making links of foreign text."""
    mood = ":white_check_mark:" if not notification.firing else f":rotating_light: [{notification.severity.value}]"
    label = notification.labels()
    context = f"incident {notification.incident}, class {label['class']}, severity {label['severity']}"
    return {
        "text": escape(title(notification)),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": f"{title(notification)}"[:HEADER], "emoji": False}},
            {"type": "section", "text": _mrkdwn(f"{mood} {escape(body(notification), SECTION - 100)}")},
            {"type": "context", "elements": [_mrkdwn(escape(context))]},
        ],
    }


def escape(text: str, limit: int = SECTION) -> str:
    """Foreign text that stays text: the three characters that Slack's markup obeys, cut so that no escape is cut in two."""
    out, length = [], 0
    for char in text:
        shown = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(char, char)
        length += len(shown)
        if length > limit:
            break
        out.append(shown)
    return "".join(out)


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}
