"""Asks a server by Prometheus' HTTP API: few requests at a time, each with a limit in time and size. IO."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

import httpx

from collector.errors import ConfigError
from collector.outcome import of_failure
from collector.prometheus.answer import Answer, PrometheusError, read, refusal

TIMEOUT_S = 30.0
"""For one query, on both sides. A server's own limit is 2 minutes; a chunk of CHUNK samples took .1 s measured."""

AT_ONCE = 4
"""Queries under way: a server runs 20 at a time by default (--query.max-concurrency), and others ask it too."""

MAX_BYTES = 64 << 20
"""Bytes of one answer: three times the largest chunk that is asked for, at 30 bytes a sample."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server and how it is reached. `token` is never repeated in a message."""

    url: str  # base URL, with a route prefix if the server has one
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def parse_server(text: str) -> str:
    """The base URL of a server, without a trailing slash or the path of its API. ConfigError for anything else; no password is repeated."""
    example = "for example --prometheus http://prometheus:9090"
    if "@" in text:
        raise ConfigError("--prometheus may not hold a user name or password; give a token with --token-env NAME or --token-file FILE")
    if "?" in text or "#" in text:
        raise ConfigError(f"--prometheus may not hold a query or fragment; {example}")
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or url.scheme not in {"http", "https"} or not text.isprintable() or any(map(str.isspace, text)):
        raise ConfigError(f"--prometheus {text[:80]!r} is no http or https URL; {example}")
    path = url.path.rstrip("/")
    for known in ("/api/v1/query_range", "/api/v1/query", "/api/v1", "/graph", "/metrics"):
        path = path.removesuffix(known)
    return f"{url.scheme}://{url.netloc.lower()}{path.rstrip('/')}"


class Client:
    """`async with Client(server) as client`. `transport` is for tests."""

    def __init__(self, server: Server, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url = server.url
        self._keyed = server.token is not None
        headers = {"User-Agent": "slowrank", "Accept-Encoding": "identity"}
        if server.token is not None:
            headers["Authorization"] = f"Bearer {server.token}"
        # trust_env off, as for engines: a proxy or a .netrc in the environment is not meant for this server
        self._client = httpx.AsyncClient(
            headers=headers, timeout=TIMEOUT_S + 5.0, verify=_trust(server), trust_env=False, transport=transport
        )
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._post = True
        self.asked = 0  # queries
        self.samples = 0  # samples that came

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def query(self, expression: str, at_ms: int) -> Answer:
        """An instant query. Raises PrometheusError for whatever is no answer."""
        form = {"query": expression, "time": f"{at_ms / 1000:.3f}", "timeout": f"{TIMEOUT_S:g}s"}
        async with self._turn:
            self.asked += 1
            status, body = await self._ask(form)
            if status == 405 and self._post:  # a proxy that lets nothing but reading pass
                self._post = False
                status, body = await self._ask(form)
        url = f"{self.url}/api/v1/query"
        if status != 200:
            raise PrometheusError(_refused(url, status, body, self._keyed))
        answer = read(url, body)
        self.samples += sum(len(series.times) for series in answer.series)
        return answer

    async def _ask(self, form: dict[str, str]) -> tuple[int, bytes]:
        url = f"{self.url}/api/v1/query"
        request = self._client.build_request("POST", url, data=form) if self._post else self._client.build_request("GET", url, params=form)
        try:
            async with asyncio.timeout(TIMEOUT_S + 5.0):
                reply = await self._client.send(request, stream=True)
                try:
                    body = bytearray()
                    async for piece in reply.aiter_bytes():
                        body += piece
                        if len(body) > MAX_BYTES:
                            raise PrometheusError(
                                f"{url}: an answer of more than {MAX_BYTES} bytes; narrow it with --match or a shorter --since"
                            )
                    if reply.is_redirect:
                        raise PrometheusError(
                            f"{url}: HTTP {reply.status_code} sends us elsewhere, perhaps to a login page; give the server's final URL, and"
                            " a token with --token-env or --token-file if it asks for one"
                        )
                    return reply.status_code, bytes(body)
                finally:
                    await reply.aclose()
        except (TimeoutError, httpx.TimeoutException):
            then = "ask for less with --match or a shorter --since, or when the server is less busy"
            raise PrometheusError(f"{url}: no complete answer within {TIMEOUT_S + 5.0:g} s; {then}") from None
        except httpx.ConnectError as failure:
            seen = of_failure(url, failure).replace("is the engine up, and is this its port?", "is the server up, and is this its port?")
            raise PrometheusError(seen.replace("SSL_CERT_FILE for", "--ca-file for")) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as failure:
            raise PrometheusError(f"{url}: the connection broke ({type(failure).__name__}); look at the server, then ask again") from None


def _trust(server: Server) -> ssl.SSLContext:
    """Whom to trust and who we are. ConfigError for files that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=server.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--ca-file {server.ca_file}: no certificates to be read ({error.strerror or error}); give a PEM file") from None
    if server.cert_file is not None:
        try:
            context.load_cert_chain(server.cert_file, server.key_file)
        except (OSError, ssl.SSLError) as error:
            seen = f"--cert-file {server.cert_file}: no certificate and key to be read ({error.strerror or error})"
            raise ConfigError(f"{seen}; give PEM files, the key with --key-file if it is apart") from None
    return context


def _refused(url: str, status: int, body: bytes, keyed: bool) -> str:
    """What a status other than 200 means, in the server's words where it has some."""
    kind, words = refusal(body)
    said = f" ({kind}: {words})" if words else ""
    if status in {401, 403}:
        then = (
            "the token is not one that it takes: look where it comes from"
            if keyed
            else "give a token with --token-env NAME or --token-file FILE"
        )
        return f"{url}: HTTP {status}, the server asks who we are; {then}"
    if status == 404:
        return f"{url}: HTTP 404, no such API; give the base URL with its prefix, such as http://mimir/prometheus"
    if status == 422 and ("too many samples" in words or "maximum" in words or "exceed" in words):
        return f"{url}: HTTP 422{said}; the limit is the server's: narrow it with --match, or a shorter --since"
    if status in {400, 422}:
        return f"{url}: HTTP {status}, the query was refused{said}; look at --match"
    if status == 429:
        return f"{url}: HTTP 429, too many queries for this server{said}; ask again later, or for less"
    if status in {502, 503, 504}:
        return f"{url}: HTTP {status}, too busy or not ready{said}; ask again, or for less with --match or a shorter --since"
    return f"{url}: HTTP {status}, not a usable answer{said}; look at the server's log"
