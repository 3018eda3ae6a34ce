"""What can go wrong between us and a history server; each message names the server, what was seen and the next step. Pure."""

from __future__ import annotations

import msgspec

from collector import outcome
from collector.errors import SourceError

SHOWN = 200
"""Characters of the server's own words that a message repeats."""


class PrometheusError(SourceError):
    """A history server gave no usable answer."""


class UnreachableError(PrometheusError):
    """Nothing answered at all, or not as a history server: no other query will do better."""


class TooMuchError(PrometheusError):
    """The server or we refuse so large an answer; a shorter range may pass."""


class _Said(msgspec.Struct):
    error: str = ""
    errorType: str = ""  # noqa: N815 - as the API spells it


_BUSY = ("too many samples", "maximum samples", "exceeds", "exceeded", "limit", "timed out", "timeout", "too long")
"""Words of Prometheus, Thanos, Mimir and VictoriaMetrics for a query that was too large or took too long."""


def of_reply(url: str, status: int, body: bytes, keyed: bool) -> PrometheusError:
    """The error of a reply whose status is not 200."""
    said = _words(body)
    shown = f" ({said[:SHOWN]!r})" if said else ""
    if status in {401, 403}:
        then = (
            "the token is not the server's: look at --token-env or --token-file"
            if keyed
            else "give its token with --token-env NAME or --token-file FILE"
        )
        return UnreachableError(f"{url}: HTTP {status}, the server asks who we are; {then}")
    if status in {413, 422, 429, 502, 503, 504} and (status == 413 or any(word in said.lower() for word in _BUSY)):
        return TooMuchError(f"{url}: HTTP {status}, the query was too much for the server{shown}; {_LESS}")
    if status in {400, 422}:
        return PrometheusError(f"{url}: HTTP {status}, the server does not take the query{shown}; is it Prometheus >= 2.42 or compatible?")
    if status == 404:
        return UnreachableError(f"{url}: HTTP 404, no query API there; give the URL above /api/v1 (Mimir's ends in /prometheus)")
    if status in {429, 502, 503, 504}:
        return TooMuchError(f"{url}: HTTP {status}, the server is overloaded or starting{shown}; wait, or {_LESS}")
    return UnreachableError(f"{url}: HTTP {status}{shown}, not a usable reply; look at the server's log")


_LESS = "ask for less: a shorter --since, or fewer engines with --match"


def _words(body: bytes) -> str:
    """What an error reply says, or nothing when it is no JSON of the API."""
    try:
        return msgspec.json.decode(body, type=_Said).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body[: 4 * SHOWN].decode(errors="replace").strip()
        return "" if text.startswith("<") else text


def of_body(url: str, body: bytes, error: Exception) -> PrometheusError:
    """The error of a reply with status 200 that is not the API's JSON."""
    start = body[:1024].lstrip()
    if start.startswith(b"<"):
        return UnreachableError(f"{url}: HTML where JSON was expected, from a proxy or a login page; give the server's own URL")
    if not start:
        return PrometheusError(f"{url}: the reply is empty; ask again, and look at the server's log if it stays so")
    return PrometheusError(
        f"{url}: not the JSON that was expected ({str(error)[:SHOWN]}); a proxy may cut replies off, or it is no Prometheus"
    )


def of_kind(url: str, kind: str) -> PrometheusError:
    """The error of a reply to a remote read that holds no chunks."""
    return PrometheusError(f"{url}: {kind[:SHOWN]!r} where a stream of chunks was expected; the query API gives the same")


def of_time(url: str, limit: float) -> PrometheusError:
    """The error of a reply that took too long."""
    return TooMuchError(f"{url}: no complete answer within {limit:g} s; {_LESS}")


def of_size(url: str, limit: int) -> PrometheusError:
    """The error of a body that is larger than we read."""
    return TooMuchError(f"{url}: more than {limit} bytes in one reply; {_LESS}")


def of_failure(url: str, error: Exception) -> PrometheusError:
    """The error of a request that got no complete reply."""
    return UnreachableError(outcome.of_failure(url, error, "server"))
