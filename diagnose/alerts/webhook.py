"""A generic webhook: the body that Alertmanager's own webhook has (version 4), signed as Standard Webhooks asks.

The id is the same for every try of one message, so that a receiver that saw it can drop it; the time is that of the try.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from collector.errors import ConfigError
from diagnose.alerts.notification import Notification
from diagnose.alerts.receiver import Post, checked
from diagnose.alerts.secret import Secret
from diagnose.alerts.wording import details, rfc3339
from diagnose.report.plain import safe

PREFIX = "whsec_"
NO_END = "0001-01-01T00:00:00Z"  # what Alertmanager writes while an alert fires: Go's zero time


@dataclass(frozen=True, slots=True)
class Webhook:
    """One address. Without a key the messages are not signed."""

    name: str
    url: Secret
    key: Secret | None = None
    standing: bool = False

    @classmethod
    def at(cls, name: str, url: str, key: Secret | None = None) -> Webhook:
        """ConfigError when `url` is no address or `key` is not `whsec_` and base64."""
        if key is not None:
            key_bytes(key, name)
        return cls(name, checked(url, f"webhook {name}"), key)

    @property
    def fingerprint(self) -> str:
        """Of its address."""
        return self.url.fingerprint

    def post(self, notification: Notification, now: float) -> Post:
        """The message, signed if there is a key."""
        body = json.dumps(payload(notification, self.name)).encode()
        name, moment = f"msg_{notification.incident}_{notification.version}", int(now)
        headers = {"content-type": "application/json", "webhook-id": name, "webhook-timestamp": str(moment)}
        if self.key is None:
            return Post(self.url, headers, body)
        headers["webhook-signature"] = sign(key_bytes(self.key, self.name), name, moment, body)
        return Post(self.url, headers, body, (self.key,))


def payload(notification: Notification, receiver: str) -> dict[str, Any]:
    """One incident as a group of one alert."""
    n = notification
    labels = {name: safe(value, 1000) for name, value in n.labels().items()}
    said = details(n)
    alert = {
        "status": n.status.value,
        "labels": labels,
        "annotations": said,
        "startsAt": rfc3339(n.started),
        "endsAt": NO_END if n.ended is None else rfc3339(n.ended),
        "generatorURL": n.link,
        "fingerprint": n.incident,
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{incident="{n.incident}"}}',
        "truncatedAlerts": 0,
        "status": n.status.value,
        "receiver": receiver,
        "groupLabels": {"incident": n.incident},
        "commonLabels": labels,
        "commonAnnotations": said,
        "externalURL": n.link,
        "alerts": [alert],
    }


def sign(key: bytes, name: str, moment: int, body: bytes) -> str:
    """The `webhook-signature` header: HMAC-SHA256 over id, unix seconds and body, in base64."""
    digest = hmac.new(key, f"{name}.{moment}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def key_bytes(key: Secret, name: str) -> bytes:
    """The key's bytes. ConfigError, without showing it, when it is not `whsec_` and base64 of 24 to 64 bytes, as the standard asks."""
    text = key.reveal()
    try:
        found = base64.b64decode(text.removeprefix(PREFIX), validate=True) if text.startswith(PREFIX) else b""
    except binascii.Error:
        found = b""
    if not 24 <= len(found) <= 64:
        raise ConfigError(
            f"webhook {name}: the key is not {PREFIX} followed by base64 of 24 to 64 bytes; make one with openssl rand -base64 32"
        )
    return found
