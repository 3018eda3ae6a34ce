"""What a receiver is, and what an answer of one means. Pure: receivers write requests, `diagnose/alerts/sender.py` sends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Protocol
from urllib.parse import urlsplit

from collector.errors import ConfigError
from diagnose.alerts.notification import Notification
from diagnose.alerts.secret import Secret

LONGEST_PAUSE = 3600.0
"""s; a receiver that asks for more by Retry-After, by mistake or on purpose, is tried again after an hour all the same."""


@dataclass(frozen=True, slots=True)
class Post:
    """One POST request, with everything that it must not give away."""

    url: Secret
    headers: Mapping[str, str]
    body: bytes
    secrets: tuple[Secret, ...] = ()  # beside the address: what must be cut out of an answer that repeats it


class Receiver(Protocol):
    """One place where people look."""

    @property
    def name(self) -> str:
        """As configured; the key of its queue."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when it is configured to be another place."""
        ...

    @property
    def standing(self) -> bool:
        """Whether it forgets what it is not told again."""
        ...

    def post(self, notification: Notification, now: float) -> Post:
        """The request that tells it. `now` is unix seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Delivered:
    """It took it."""


@dataclass(frozen=True, slots=True)
class Again:
    """It could not take it now, or the answer was lost; `after` seconds if it said so."""

    why: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """It will not take this message, however often it is sent."""

    why: str


@dataclass(frozen=True, slots=True)
class Gone:
    """It is no more (410): nothing is sent there until it is configured anew."""

    why: str


Answer = Delivered | Again | Refused | Gone

_REFUSED = {400, 413, 415, 422}
"""They speak of the message. 401, 403 and 404 speak of the configuration, which people repair while the message waits."""


def judge(status: int, headers: Mapping[str, str], text: str, now: float, host: str) -> Answer:
    """What an HTTP answer of `host` means for the message. `headers` have lower-case names; `now` is unix seconds."""
    if 200 <= status < 300:
        return Delivered()
    why = f"{host} answered {status}" + (f": {text}" if text else "")
    if status == 410:
        return Gone(why)
    if status in _REFUSED:
        return Refused(why)
    return Again(why, retry_after(headers.get("retry-after", ""), now))


def retry_after(value: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110 10.2.3: seconds or a date), at most an hour; None: nothing sensible."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), LONGEST_PAUSE)
    try:
        seconds = parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), LONGEST_PAUSE)


def checked(url: str, what: str) -> Secret:
    """An address to post to. ConfigError for what cannot be one; the error shows no more than its scheme, as the rest may be a key."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigError(f"{what}: the address is not a URL; write it as https://host/path") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(f"{what}: the address starts with {parts.scheme or 'no scheme'!r}; write it as https://host/path")
    return Secret(url)
