"""Asks a history server: label sets, raw samples, a number. IO."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from collector.errors import ConfigError
from collector.prometheus import errors, matrix, remote
from collector.prometheus.errors import PrometheusError
from collector.prometheus.matchers import Matcher
from collector.prometheus.matrix import Series

TIMEOUT = 30.0
"""Seconds for one query: above them Prometheus' own default of two minutes helps nobody who waits at a terminal."""

AT_ONCE = 4
"""Queries under way: Prometheus runs 20 at a time by default, and people's dashboards need the others."""

MAX_BYTES = 128 << 20
"""Bytes of one reply: seven times the largest that is asked for."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Server:
    """A history server and how to be let in. `ca`: a file of certificates to trust; `tenant`: Mimir's and Cortex' X-Scope-OrgID."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    tenant: str | None = None

    def __post_init__(self) -> None:
        for what, text in (("the token", self.token), ("--tenant", self.tenant)):
            if text is not None and not (text and text.isascii() and text.isprintable() and " " not in text):
                raise ConfigError(f"{what} is empty or holds characters that a header cannot carry")


def parse_url(text: str) -> str:
    """The base URL of a query API without its trailing slash. ConfigError for anything else; a password in it is not repeated."""
    example = "for example http://prometheus:9090, or https://mimir/prometheus"
    if "@" in text:
        raise ConfigError("--prometheus may not hold a user name or password; give a token with --token-env or --token-file")
    try:
        url = urlsplit(text)
        usable = url.scheme in {"http", "https"} and url.hostname and url.port != 0
    except ValueError:
        usable = False
    if not usable or "?" in text or "#" in text or not text.isprintable() or " " in text:
        raise ConfigError(f"--prometheus {text!r} is no http(s) base URL; give one, {example}")
    base = text.rstrip("/")
    if "/api/v1" in base:
        raise ConfigError(f"--prometheus {text!r} names the API itself; give what stands before /api/v1, {example}")
    return base


class Api:
    """An open connection to a server. `queries` and `samples` count what was asked and what came."""

    def __init__(
        self, server: Server, *, transport: httpx.AsyncBaseTransport | None = None, timeout: float = TIMEOUT, streams: bool | None = None
    ) -> None:
        """`streams`: whether the server hands out chunks; None: it is asked."""
        self.url = server.url
        self.queries = 0
        self.samples = 0
        self.warnings: dict[str, None] = {}  # in order, once each
        self._keyed = server.token is not None
        self._limit = timeout
        self._get = False  # the server wants GET
        self._streams = streams
        self._turn = asyncio.Semaphore(AT_ONCE)
        headers = {"Accept-Encoding": "identity", "User-Agent": "slowrank"}
        if server.token is not None:
            headers["Authorization"] = f"Bearer {server.token}"
        if server.tenant is not None:
            headers["X-Scope-OrgID"] = server.tenant
        try:  # made for TLS only: reading the system's certificates takes 50 ms
            trust = ssl.create_default_context(cafile=str(server.ca) if server.ca else None) if self.url.startswith("https") else False
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--ca-file {server.ca}: no certificates can be read from it ({error})") from None
        # trust_env off: a proxy or a .netrc in the environment is not meant for this server
        self._client = httpx.AsyncClient(headers=headers, timeout=None, verify=trust, trust_env=False, transport=transport)  # noqa: S113

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client.aclose()

    async def labels(self, selectors: Sequence[str], start: float | None = None, end: float | None = None) -> list[dict[str, str]]:
        """Label sets of every series that one of the selectors takes between two unix times, or ever. Raises PrometheusError."""
        span = {name: f"{at:.3f}" for name, at in (("start", start), ("end", end)) if at is not None}
        return self._told(await self._ask("series", {"match[]": list(selectors), **span}, matrix.labels))

    async def raw(self, query: str, at: float) -> list[Series]:
        """The series of a `selector[range]` that ends at a unix time. Raises PrometheusError."""
        series = self._told(await self._ask("query", {"query": query, "time": f"{at:.3f}"}, matrix.matrix))
        self.samples += sum(len(one.times) for one in series)
        return series

    async def streams(self) -> bool:
        """Whether the server hands out chunks as it stores them, which costs it a seventh (decision 0026): Prometheus and Mimir do. One
        that has no such thing, or keeps it for others, does not; one that is not there is found out by the next query."""
        if self._get:
            return False
        if self._streams is None:
            try:
                await self.chunks([Matcher("tp_rank", "=", "none")], 0.0, 0.0)  # nothing has it
                self._streams = True
            except PrometheusError:
                self._streams = False
        return self._streams

    async def chunks(self, matchers: Sequence[Matcher], start: float, end: float) -> list[Series]:
        """The series of the matchers between two unix times, by remote read; the server's external labels may be on them. Raises
        PrometheusError."""
        asked = remote.request(matchers, start, end)

        async def send(url: str) -> tuple[int, bytes]:
            status, body, kind = await self._reply("POST", url, content=asked, headers=remote.HEADERS)
            if status == 200 and not kind.startswith(remote.REPLY_TYPE):
                raise errors.of_kind(url, kind)
            return status, body

        series = await self._sent("read", send, lambda body: remote.series(body, start, end))
        self.samples += sum(len(one.times) for one in series)
        return series

    async def number(self, query: str, at: float) -> float | None:
        """The value of an expression with one result; None without any. Raises PrometheusError."""
        return await self._ask("query", {"query": query, "time": f"{at:.3f}"}, matrix.scalar)

    def _told(self, found: tuple[_T, list[str]]) -> _T:
        self.warnings.update(dict.fromkeys(text[: errors.SHOWN] for text in found[1]))
        return found[0]

    async def _ask(self, path: str, form: Mapping[str, str | list[str]], read: Callable[[bytes], _T]) -> _T:
        return await self._sent(path, lambda url: self._send(url, form), read)

    async def _sent(self, path: str, send: Callable[[str], Awaitable[tuple[int, bytes]]], read: Callable[[bytes], _T]) -> _T:
        url = f"{self.url}/api/v1/{path}"
        self.queries += 1
        async with self._turn:
            try:
                async with asyncio.timeout(self._limit):
                    status, body = await send(url)
            except TimeoutError:
                raise errors.of_time(url, self._limit) from None
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as failure:
                raise errors.of_failure(url, failure) from None
            if status != 200:
                raise errors.of_reply(url, status, body, self._keyed)
            try:
                return read(body)
            except (msgspec.DecodeError, ValueError, TypeError, IndexError, RecursionError) as error:
                raise errors.of_body(url, body, error) from None

    async def _send(self, url: str, form: Mapping[str, str | list[str]]) -> tuple[int, bytes]:
        """Status and body of a POST, whose query may be long; of a GET where only that is let through."""
        if not self._get:
            status, body, _ = await self._reply("POST", url, data=form)
            if status != 405:
                return status, body
            self._get = True
        status, body, _ = await self._reply("GET", url, params=form)
        return status, body

    async def _reply(self, method: str, url: str, **said: Any) -> tuple[int, bytes, str]:
        """Status, body and content type of a request, of which `said` are httpx' own arguments."""
        body = bytearray()
        async with self._client.stream(method, url, **said) as reply:
            async for chunk in reply.aiter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise errors.of_size(url, MAX_BYTES)
            return reply.status_code, bytes(body), reply.headers.get("content-type", "")
