"""Asks engines for their pages, again and again, each page on its own clock. IO.

One client and one task per node and source, so that a slow or dead one delays no other. A missed tick is skipped, never made up for: the
retry of a scrape is the next tick. `Accept-Encoding: identity` and no Accept header of ours: compression costs the engine CPU, and asking
for OpenMetrics makes newer Prometheus clients rename every series.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from urllib.parse import urljoin, urlsplit

import httpx

from collector import outcome
from collector.engines.kinds import PATHS, kind_of, recognise
from collector.errors import SourceError
from collector.hardware import local
from collector.model import Page, Source
from collector.roles import FIRST_NODE_ONLY
from collector.targets import Target, parse_target

__all__ = ["INTERVALS", "MAX_BYTES", "TIMEOUTS", "Target", "parse_target", "scrape"]

INTERVALS: Mapping[Source, float] = {Source.SGLANG_LOADS: 1.0, Source.SGLANG_METRICS: 2.0, Source.SGLANG_SERVER_INFO: inf}
"""Seconds between pages; inf is once. A load page costs the engine microseconds, a metrics page tens of milliseconds of CPU.

Whose page /metrics is shows when it comes: it is asked for as SGLang's and handed on as what it is (`kinds.recognise`)."""

MACHINES: Mapping[Source, float] = {Source.DCGM: 5.0, Source.NVML: 2.0, Source.PROCFS: 1.0}
"""The same for pages of a target's machines, where it has them. dcgm-exporter itself looks every 30 s unless it is told otherwise (-c)."""

TIMEOUTS: Mapping[Source, float] = {
    Source.SGLANG_LOADS: 5.0,
    Source.SGLANG_METRICS: 10.0,
    Source.SGLANG_SERVER_INFO: 10.0,
    Source.DCGM: 10.0,
}
"""Seconds for one whole request."""

MAX_BYTES = 32 << 20
"""Bytes of one body: more than a hundred times a page of an 8-rank engine."""

REACH_AGAIN_S = 15.0
"""Seconds after which a page that is wanted once is asked for again because nobody listened."""

_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "slowrank"}
_BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


async def scrape(
    targets: Sequence[Target],
    on_page: Callable[[Page], None],
    *,
    intervals: Mapping[Source, float] = INTERVALS,
    stop: asyncio.Event,
    timeouts: Mapping[Source, float] = TIMEOUTS,
    max_bytes: int = MAX_BYTES,
    trust: ssl.SSLContext | None = None,
) -> None:
    """Fetch the sources of `intervals` from all targets until `stop` is set; every outcome, failures too, goes to `on_page` as a Page.

    /v1/loads and /server_info are asked of node 0, /metrics of every node; a target's machines are read at MACHINES' intervals. The value
    that `intervals` holds after a page is the time to the next one of its source, so it may change meanwhile; its keys may not. `trust`:
    TLS other than the system's. Returns at once when `stop` is set: requests under way are dropped. What `on_page` raises ends the scrape.
    Raises ConfigError, before the first page, when what a target wants of this node cannot be read here.
    """
    clock = _Clock()
    lookers = [(target.engine, *looker) for target in targets for looker in local.lookers(target.local, target.nodes)]
    limits = httpx.Limits(keepalive_expiry=10 * max((every for every in intervals.values() if every < inf), default=1.0))
    trust = ssl.create_default_context() if trust is None else trust
    clients: list[httpx.AsyncClient] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for target in targets:
                kind = _Kind()
                for number, node in enumerate(target.nodes):
                    headers = _HEADERS | ({"Authorization": f"Bearer {target.api_key}"} if target.api_key else {})
                    # trust_env off: a proxy or a .netrc in the environment is not meant for engines
                    client = httpx.AsyncClient(headers=headers, timeout=None, limits=limits, verify=trust, trust_env=False)  # noqa: S113
                    clients.append(client)
                    for source in intervals:
                        if number == 0 or source not in FIRST_NODE_ONLY:
                            fetcher = _Fetcher(
                                client, target.engine, node, source, timeouts[source], max_bytes, clock, kind, keyed=bool(target.api_key)
                            )
                            tasks.append(group.create_task(_poll(fetcher, source, intervals, on_page)))
                for page in target.hardware:  # the engine's key is not for them
                    client = httpx.AsyncClient(headers=_HEADERS, timeout=None, limits=limits, verify=trust, trust_env=False)  # noqa: S113
                    clients.append(client)
                    fetcher = _Fetcher(
                        client, target.engine, page, Source.DCGM, timeouts.get(Source.DCGM, TIMEOUTS[Source.DCGM]), max_bytes, clock, kind
                    )
                    tasks.append(group.create_task(_poll(fetcher, Source.DCGM, MACHINES, on_page)))
            for engine, source, look in lookers:
                tasks.append(group.create_task(_poll(_Local(engine, source, look, clock), source, MACHINES, on_page)))
            await stop.wait()
            for task in tasks:
                task.cancel()
    finally:
        for client in clients:
            await client.aclose()


class _Clock:
    """Unix seconds that never jump: the wall clock once, and a steady one since."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class _Kind:
    """What is known of the engine that a target is; shared by its fetchers."""

    def __init__(self) -> None:
        self._told: str | None = None

    def told(self, source: Source) -> None:
        """A page of this source was there."""
        if source in PATHS:
            self._told = kind_of(source)

    def has(self, source: Source) -> bool:
        """Whether such an engine can have this page; the metrics page of one is that of the other, and a machine is nobody's."""
        return self._told in {None, kind_of(source)} or source is Source.SGLANG_METRICS or source not in PATHS


async def _poll(fetcher: _Fetcher | _Local, source: Source, intervals: Mapping[Source, float], on_page: Callable[[Page], None]) -> None:
    """One page after the other, on deadlines that do not drift."""
    deadline = time.monotonic()
    while fetcher.worthwhile:
        late = max(0.0, time.monotonic() - deadline)
        page = await fetcher.fetch()
        on_page(replace(page, late=late))
        every = intervals[source]
        if every < inf:
            deadline += every * max(ceil((time.monotonic() - deadline) / every), 1)
        elif not fetcher.unreached:
            return
        else:
            deadline = time.monotonic() + REACH_AGAIN_S
        await asyncio.sleep(deadline - time.monotonic())


class _Local:
    """A look at this node, as often as wanted, in a thread: it reads files, or asks a driver that may be slow."""

    unreached = False  # it is asked for again and again
    worthwhile = True

    def __init__(self, engine: str, source: Source, look: Callable[[], bytes], clock: _Clock) -> None:
        self._engine = engine
        self._source = source
        self._look = look
        self._clock = clock

    async def fetch(self) -> Page:
        """One look and its outcome. Raises nothing but cancellation."""
        start = self._clock.now()
        body, error = b"", None
        try:
            body = await asyncio.to_thread(self._look)
        except (SourceError, OSError) as failure:
            error = f"{self._source.value}: {failure}"
        arrived = self._clock.now()
        status = 0 if error else 200
        return Page(self._engine, local.NODE, self._source, arrived, arrived - start, status, local.CONTENT_TYPE, body, error)


class _Unanswered(httpx.NetworkError):
    """The connection broke before any part of a reply came."""


class _Fetcher:
    """One page of one node, asked for as often as wanted."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        engine: str,
        node: str,
        source: Source,
        limit: float,
        max_bytes: int,
        clock: _Clock,
        kind: _Kind,
        *,
        keyed: bool = False,
    ) -> None:
        self._client = client
        self._engine = engine
        self._keyed = keyed
        self._node = node
        self._source = source
        self._limit = limit
        self._max_bytes = max_bytes
        self._clock = clock
        self._kind = kind
        self._url = node + PATHS.get(source, "")  # a page of a machine is named in full
        self.unreached = False  # nobody listened at the last attempt

    @property
    def worthwhile(self) -> bool:
        """Whether the engine may have this page at all."""
        return self._kind.has(self._source)

    async def fetch(self) -> Page:
        """One request and its outcome. Raises nothing but cancellation."""
        start = self._clock.now()
        status, kind, body, error = 0, "", b"", None
        self.unreached = False
        try:
            async with asyncio.timeout(self._limit):
                status, kind, body = await self._request()
        except TimeoutError:
            error = outcome.of_time(self._url, self._source, self._limit)
        except SourceError as refused:
            error = str(refused)
        except httpx.ConnectError as failure:
            self.unreached = True
            error = outcome.of_failure(self._url, failure)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as failure:
            error = outcome.of_failure(self._url, failure)
        if error is None:
            if status != 200:
                error = outcome.of_status(self._url, self._source, status, self._keyed)
            else:
                error = outcome.of_body(self._url, self._source, body)
        arrived = self._clock.now()
        kept = b"" if error is not None else body
        source = self._source
        if error is None:
            source = recognise(body) if source is Source.SGLANG_METRICS else source
            if source is not Source.SGLANG_SERVER_INFO:  # a page of that name proves nothing: vLLM can have one too
                self._kind.told(source)
        return Page(self._engine, self._node, source, arrived, arrived - start, status, kind, kept, error)

    async def _request(self) -> tuple[int, str, bytes]:
        """Status, content type and body; SourceError for a reply that is refused as such."""
        try:
            return await self._ask(self._url)
        except _Unanswered:
            # an engine closes idle connections after seconds (uvicorn: 5); one that it closed as we asked is worth a second try
            return await self._ask(self._url)

    async def _ask(self, url: str) -> tuple[int, str, bytes]:
        answered = False
        try:
            async with self._client.stream("GET", url) as reply:
                answered = True
                if not reply.has_redirect_location:
                    return reply.status_code, str(reply.headers.get("content-type", ""))[:200], await self._body(reply)
                onward = self._onward(url, str(reply.headers["location"]))
        except _BROKEN as broken:
            if answered:
                raise
            raise _Unanswered(str(broken)) from broken
        return await self._ask(onward)

    def _onward(self, url: str, location: str) -> str:
        """Where a redirect leads: followed once, to the same place with a slash (`/metrics/` of a mounted app), and nowhere else."""
        to = urljoin(url, location)
        if url == self._url and to == url + "/":
            return to
        there = urlsplit(to)
        raise SourceError(outcome.of_redirect(self._url, f"{there.scheme}://{there.hostname}" if there.hostname else "nowhere"))

    async def _body(self, reply: httpx.Response) -> bytes:
        """The body of a reply, unpacked, never more than max_bytes of it in memory; nothing of a failed one."""
        if reply.status_code != 200:
            return b""
        encoding = reply.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in {"identity", "gzip", "deflate"}:
            raise SourceError(outcome.of_encoding(self._url, encoding))
        unpacker = None if encoding == "identity" else zlib.decompressobj(47)  # 47: gzip or zlib, by its header
        body = bytearray()
        async for chunk in reply.aiter_raw():
            try:
                body += chunk if unpacker is None else unpacker.decompress(chunk, self._max_bytes - len(body) + 1)
            except zlib.error:
                raise SourceError(f"{self._url}: the {encoding} body is damaged; switch compression off at the proxy") from None
            if len(body) > self._max_bytes:
                raise SourceError(outcome.of_size(self._url, self._max_bytes))
        if unpacker is not None and not unpacker.eof:
            raise SourceError(f"{self._url}: the {encoding} body ends early; switch compression off at the proxy")
        return bytes(body)
