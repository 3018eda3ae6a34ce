"""What came back from a scrape, in plain words: the URL, what was seen, the next step. Pure; no secret passes through here."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import httpx

from collector.model import Source

DCGM = Source.DCGM
LOADS, METRICS, INFO = Source.SGLANG_LOADS, Source.SGLANG_METRICS, Source.SGLANG_SERVER_INFO

_LOG = "look at the engine's log"

_STATUS: dict[tuple[int, Source | None], tuple[str, str]] = {
    (404, METRICS): (
        "there is no /metrics",
        "metrics are off: start SGLang with --enable-metrics; on vLLM ask an API server's port, not a supervisor's",
    ),
    (404, LOADS): (
        "there is no /v1/loads",
        "name node 0 first in the target (follower nodes have none), or upgrade SGLang: it is there since 0.5.9",
    ),
    (404, DCGM): ("there is no such page", "give dcgm-exporter's own page: port 9400, /metrics"),
    (404, INFO): ("there is no /server_info", "how many ranks there should be stays unknown; is this an SGLang server?"),
    (500, METRICS): ("the engine failed to make its metrics page", f"{_LOG}; PROMETHEUS_MULTIPROC_DIR must be on a local disk"),
    (503, None): ("the engine is not ready", "wait until it has started"),
}
"""Status and source (None: any) to what it means and what to do."""

_EMPTY = {
    METRICS: ("the metrics page is empty", "start SGLang with --enable-metrics, vLLM without --disable-log-stats; routers' have no ranks"),
    LOADS: ("the reply is empty", _LOG),
    INFO: ("the reply is empty", _LOG),
    DCGM: ("the page is empty", "dcgm-exporter has no card to speak of, or has just started: look at its log"),
}


def of_status(url: str, source: Source, status: int, keyed: bool) -> str:
    """The error of a reply whose status is not 200. `keyed`: an API key was sent."""
    if status in {401, 403}:
        then = "the API key is not the engine's: look at the variable of --api-key-env" if keyed else "give its key with --api-key-env NAME"
        return f"{url}: HTTP {status}, the engine asks for an API key; {then}"
    what, then = _STATUS.get((status, source)) or _STATUS.get((status, None)) or ("not a usable reply", _LOG)
    return f"{url}: HTTP {status}, {what}; {then}"


def of_redirect(url: str, to: str) -> str:
    """The error of a redirect that is not followed; `to` is the scheme, host and port it points at."""
    return f"{url}: sends us on to {to}; it was not followed, give the engine's final URL as the target"


def of_body(url: str, source: Source, body: bytes) -> str | None:
    """The error of a body with status 200 that cannot be the page; None for one that may be."""
    start = body[:1024].lstrip()
    if not start:
        what, then = _EMPTY[source]
        return f"{url}: {what}; {then}"
    if start.startswith(b"<"):
        return f"{url}: HTML instead of the page, from a proxy or a login page; give the engine's own host and port"
    return None


def of_size(url: str, limit: int) -> str:
    """The error of a body that is larger than we read."""
    return f"{url}: more than {limit} bytes; is this the engine's own page? A label with ever new values makes a page grow"


def of_time(url: str, source: Source, limit: float) -> str:
    """The error of a reply that took too long."""
    if source is INFO:
        return f"{url}: no answer within {limit:g} s; it waits for all schedulers, so one of them may hang"
    return f"{url}: no complete answer within {limit:g} s; the engine or the network is too busy, or hangs"


def of_encoding(url: str, encoding: str) -> str:
    """The error of a body in an encoding that was not asked for."""
    return f"{url}: sent with Content-Encoding {encoding[:40]!r}, which was not asked for; switch compression off at the proxy"


def of_failure(url: str, error: Exception, who: str = "engine") -> str:
    """The error of a request that got no complete reply. Names the kind of failure, never what the library says: that may hold headers.
    `who` was asked."""
    if isinstance(error, httpx.ConnectError):
        return f"{url}: {_connecting(error).format(who=who)}"
    if isinstance(error, httpx.NetworkError | httpx.ProtocolError):
        return f"{url}: the connection broke before the reply was complete; look at the {who}'s log, it may be restarting"
    return f"{url}: no usable reply ({type(error).__name__}); check the target"


def _connecting(error: BaseException) -> str:
    causes = tuple(_causes(error))
    for kind, meaning in _CAUSES:
        if any(isinstance(cause, kind) for cause in causes):
            return meaning
    return "cannot be reached; check the network between here and there"


_CAUSES: tuple[tuple[type[OSError], str], ...] = (
    (ssl.SSLError, "TLS failed; use http:// for a plain port, and SSL_CERT_FILE for a certificate of your own"),
    (socket.gaierror, "no such host; check the name"),
    (ConnectionRefusedError, "nothing listens there; is the {who} up, and is this its port?"),
)


def _causes(error: BaseException | None, depth: int = 10) -> Iterator[BaseException]:
    """An error and what it came from."""
    if error is None or not depth:
        return
    yield error
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _causes(inner, depth - 1)
    yield from _causes(error.__cause__ or error.__context__, depth - 1)
