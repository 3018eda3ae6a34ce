"""Scraping against a server on this machine that behaves in every way seen in the field. No assertion depends on how fast it ran."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.capture import CaptureWriter, replay
from collector.errors import ConfigError, SourceError
from collector.intake import Intake
from collector.model import Page, Source
from collector.scrape import Target, parse_target, scrape
from collector.targets import with_machines

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
LOADS, METRICS, INFO = Source.SGLANG_LOADS, Source.SGLANG_METRICS, Source.SGLANG_SERVER_INFO
PAGE = (CAPTURES / "tp4-dp2-ep4.prom").read_bytes()
FULL: dict[str, Any] = json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]
KEY = "sk-hunter2"

Answer = Callable[[str, dict[str, str], asyncio.StreamWriter], Awaitable[None]]


def reply(body: bytes, status: str = "200 OK", kind: str = "text/plain", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def always(raw: bytes) -> Answer:
    """The same bytes for every request."""

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    return answer


class Server:
    """A loopback HTTP server; `asked` are the paths and headers of all requests, in order."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.node = ""
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                path = head[0].split(" ")[1]
                headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
                self.asked.append((path, headers))
                await self._answer(path, headers, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.node = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        await server.close()
        await listener.wait_closed()


class Seen:
    """Collects pages and stops the scrape when there are enough."""

    def __init__(self, enough: Callable[[list[Page]], bool]) -> None:
        self.pages: list[Page] = []
        self.stop = asyncio.Event()
        self._enough = enough

    def __call__(self, page: Page) -> None:
        self.pages.append(page)
        if self._enough(self.pages):
            self.stop.set()


async def once(nodes: tuple[str, ...], source: Source = METRICS, *, key: str | None = None, **options: Any) -> Page:
    """The first page of one source."""
    seen = Seen(bool)
    limit = options.pop("timeout", 20.0)
    await scrape([Target("e", nodes, key)], seen, intervals={source: 60.0}, stop=seen.stop, timeouts={source: limit}, **options)
    return seen.pages[0]


def ask(answer: Answer, source: Source = METRICS, **options: Any) -> Page:
    """The first page that a server with this answer gives."""

    async def run() -> Page:
        async with serving(answer) as server:
            return await once((server.node,), source, **options)

    return asyncio.run(run())


def test_a_good_page_is_kept_whole() -> None:
    """Body, status, type and the moment it was complete; no error."""
    page = ask(always(reply(PAGE, kind="text/plain; version=0.0.4")))
    assert (page.body, page.status, page.content_type, page.error) == (PAGE, 200, "text/plain; version=0.0.4", None)
    assert page.took >= 0
    assert page.arrived > 1.6e9
    assert (page.engine, page.source) == ("e", METRICS)


def test_what_is_asked_for_does_not_rename_series_or_cost_compression() -> None:
    """No OpenMetrics in Accept, identity encoding, and the key only when there is one."""

    async def run(key: str | None) -> dict[str, str]:
        async with serving(always(reply(PAGE))) as server:
            await once((server.node,), key=key)
            return server.asked[0][1]

    headers = asyncio.run(run(None))
    assert "openmetrics" not in headers["accept"]
    assert headers["accept-encoding"] == "identity"
    assert "authorization" not in headers
    assert asyncio.run(run(KEY))["authorization"] == f"Bearer {KEY}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def unreachable(node: str) -> str:
    page = asyncio.run(once((node,)))
    assert page.status == 0
    assert page.error is not None
    assert page.error.startswith(f"{node}/metrics: ")
    return page.error


def test_nobody_listens() -> None:
    """Refused: status 0, the URL, the next step."""
    assert "nothing listens there" in unreachable(f"http://127.0.0.1:{free_port()}")


def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve is told apart from a port that is closed."""

    def getaddrinfo(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert "no such host" in unreachable("http://no-such-host.invalid:30000")


def test_plain_http_where_tls_was_asked() -> None:
    """https:// on a plain port."""

    def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b"", "400 Bad Request"))
        writer.close()

    async def run() -> Page:
        listener = await asyncio.start_server(plain, "127.0.0.1", 0)
        async with listener:
            return await once((f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}",))

    assert "TLS failed; use http://" in str(asyncio.run(run()).error)


@pytest.mark.parametrize(
    ("source", "status", "key", "words"),
    [
        (METRICS, "401 Unauthorized", None, "--api-key-env NAME"),
        (LOADS, "401 Unauthorized", None, "--api-key-env NAME"),
        (LOADS, "401 Unauthorized", KEY, "is not the engine's: look at the variable of --api-key-env"),
        (LOADS, "403 Forbidden", KEY, "is not the engine's"),
        (METRICS, "404 Not Found", None, "metrics are off: start SGLang with --enable-metrics"),
        (LOADS, "404 Not Found", None, "node 0 first"),
        (LOADS, "404 Not Found", None, "since 0.5.9"),
        (INFO, "404 Not Found", None, "unknown"),
        (METRICS, "500 Internal Server Error", None, "PROMETHEUS_MULTIPROC_DIR"),
        (LOADS, "500 Internal Server Error", None, "engine's log"),
        (LOADS, "503 Service Unavailable", None, "not ready"),
        (LOADS, "304 Not Modified", None, "HTTP 304"),
    ],
)
def test_statuses_in_plain_words(source: Source, status: str, key: str | None, words: str) -> None:
    """What it means and what to do; never the body, never the key."""
    page = ask(always(reply(b"secret body " + KEY.encode(), status)), source, key=key)
    assert page.status == int(status[:3])
    assert page.body == b""
    assert page.error is not None
    assert words in page.error
    assert "http://127.0.0.1:" in page.error
    assert KEY not in repr(page)


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"<!DOCTYPE html><html>sign in", "HTML"), (b"  \n <html>", "HTML"), (b"", "empty"), (b" \n\n", "empty")],
)
def test_a_200_that_is_no_page(body: bytes, words: str) -> None:
    """A login page or nothing at all."""
    for source in (METRICS, LOADS):
        page = ask(always(reply(body)), source)
        assert words in str(page.error)
        assert page.body == b""


def test_a_body_that_breaks_off() -> None:
    """Content-Length says more than comes: the page is a failure, not a short page; and it is not asked for twice."""

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(reply(PAGE)[:5000])
        await writer.drain()
        writer.close()

    async def run() -> tuple[Page, int]:
        async with serving(answer) as server:
            return await once((server.node,)), len(server.asked)

    page, asked = asyncio.run(run())
    assert "broke before the reply was complete" in str(page.error)
    assert (page.status, page.body, asked) == (0, b"", 1)


def test_a_connection_closed_before_the_reply_is_tried_once_more() -> None:
    """Engines close idle connections after seconds; the request that meets this is no failure."""
    turns: list[str] = []

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        turns.append(path)
        if len(turns) == 1:
            writer.close()
        else:
            writer.write(reply(PAGE))

    assert ask(answer).error is None
    assert len(turns) == 2

    async def never(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        turns.append(path)
        writer.close()

    turns.clear()
    assert "broke before the reply was complete" in str(ask(never).error)
    assert len(turns) == 2


def test_a_page_of_50_mb_is_refused() -> None:
    """By default the limit is 32 MiB, whether the size is declared or not."""
    page = ask(always(reply(b"x" * 50_000_000)))
    assert "more than 33554432 bytes" in str(page.error)
    assert page.body == b""


@pytest.mark.parametrize("packed", [False, True])
def test_a_body_without_end_is_cut_at_the_limit(packed: bool) -> None:
    """Chunk after chunk for ever, also as a gzip that unpacks without end."""
    sent = 0

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + (b"Content-Encoding: gzip\r\n" if packed else b"") + b"\r\n")
        block = gzip.compress(bytes(4 << 20)) if packed else b"y" * 65536
        while True:
            writer.write(b"%x\r\n%b\r\n" % (len(block), block))
            sent += 1
            await writer.drain()
            if packed:
                block = b""
                await asyncio.Event().wait()

    page = ask(answer, max_bytes=1 << 20)
    assert "more than 1048576 bytes" in str(page.error)
    assert sent >= 1


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compression_that_was_not_asked_for_is_read(encoding: str) -> None:
    """A proxy may compress all the same."""
    import zlib

    packed = gzip.compress(PAGE) if encoding == "gzip" else zlib.compress(PAGE)
    page = ask(always(reply(packed, "200 OK", "text/plain", f"Content-Encoding: {encoding}")))
    assert (page.body, page.error) == (PAGE, None)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (reply(b"x", "200 OK", "text/plain", "Content-Encoding: br"), "Content-Encoding 'br'"),
        (reply(b"nonsense", "200 OK", "text/plain", "Content-Encoding: gzip"), "damaged"),
        (reply(gzip.compress(PAGE)[:900], "200 OK", "text/plain", "Content-Encoding: gzip"), "ends early"),
        (b"not http at all\r\n\r\n", "broke before"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "broke before"),
    ],
)
def test_replies_that_cannot_be_read(raw: bytes, words: str) -> None:
    """Unknown or damaged encodings, and what is not HTTP."""
    assert words in str(ask(always(raw)).error)


def test_a_mounted_app_is_followed_to_its_slash() -> None:
    """307 from /metrics to /metrics/ on the same host, once, with the key."""

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        assert headers["authorization"] == f"Bearer {KEY}"
        writer.write(reply(PAGE) if path == "/metrics/" else reply(b"", "307 Temporary Redirect", "", "Location: /metrics/"))

    assert ask(answer, key=KEY).body == PAGE


@pytest.mark.parametrize(
    "to", ["http://elsewhere.example/metrics/?t=hunter2", "/login", "/metrics", "/metrics/", "//evil.example/metrics/", ""]
)
def test_no_other_redirect_is_followed(to: str) -> None:
    """Another host would get the key; a loop would never end. Only the host is told."""

    async def run() -> tuple[Page, list[tuple[str, dict[str, str]]]]:
        async with serving(always(reply(b"", "307 Temporary Redirect", "", f"Location: {to}"))) as server:
            return await once((server.node,), key=KEY), server.asked

    page, asked = asyncio.run(run())
    assert page.error is not None
    assert "hunter2" not in page.error
    assert "redirect" in page.error or "sends us on" in page.error or "HTTP 307" in page.error
    assert len(asked) == (2 if to == "/metrics/" else 1)


def test_no_answer_in_time() -> None:
    """A request has one limit for all of it: a trickle does not keep it alive. /server_info says what its hang means."""

    async def trickle(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def silent(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    assert "no complete answer within 0.2 s" in str(ask(trickle, timeout=0.2).error)
    assert "one of them may hang" in str(ask(silent, INFO, timeout=0.2).error)


async def engine(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """All three pages of a healthy engine."""
    bodies = {"/metrics": PAGE, "/v1/loads": json.dumps(FULL).encode(), "/server_info": b'{"dp_size": 2, "attn_dp_size": 1}'}
    writer.write(reply(bodies[path]))


def test_loads_and_info_are_asked_of_node_0_and_metrics_of_all() -> None:
    """Follower nodes have no /v1/loads; each node shows the counters of its own ranks only."""

    async def run() -> tuple[list[Page], list[set[str]]]:
        async with serving(engine) as first, serving(engine) as second:
            seen = Seen(lambda pages: sum(p.source is METRICS for p in pages) >= 6 and len({p.node for p in pages}) == 2 and len(pages) > 9)
            target = parse_target(f"{first.node},{second.node}")
            await scrape([target], seen, intervals={LOADS: 0.01, METRICS: 0.01, INFO: inf}, stop=seen.stop)
            return seen.pages, [{path for path, _ in server.asked} for server in (first, second)]

    pages, paths = asyncio.run(run())
    assert paths == [{"/v1/loads", "/metrics", "/server_info"}, {"/metrics"}]
    assert sum(page.source is INFO for page in pages) == 1
    assert all(page.error is None for page in pages)


def test_a_slow_target_delays_no_other() -> None:
    """While one engine never answers, the other is read on; the slow one's pages wait for nobody either."""

    async def silent(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        if path == "/metrics":
            await asyncio.Event().wait()
        await engine(path, headers, writer)

    async def run() -> list[Page]:
        async with serving(silent) as slow, serving(engine) as fast:

            def enough(pages: list[Page]) -> bool:
                return all(sum((page.engine, page.source) == key for page in pages) >= 20 for key in expected)

            expected = {(fast.node, METRICS), (fast.node, LOADS), (slow.node, LOADS)}
            seen = Seen(enough)
            targets = [parse_target(slow.node), parse_target(fast.node)]
            await scrape(targets, seen, intervals={LOADS: 0.01, METRICS: 0.01}, stop=seen.stop, timeouts={LOADS: 60.0, METRICS: 60.0})
            assert {(page.engine, page.source) for page in seen.pages} == expected
            return seen.pages

    assert all(page.error is None for page in asyncio.run(run()))


def test_missed_ticks_are_skipped_not_made_up_for() -> None:
    """Never two requests of one page at a time, and no burst after a slow one."""
    open_now, most, number = 0, 0, 0

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most, number
        open_now, number = open_now + 1, number + 1
        most = max(most, open_now)
        if number == 2:
            await asyncio.sleep(0.2)
        writer.write(reply(PAGE))
        open_now -= 1

    async def run() -> list[Page]:
        async with serving(answer) as server:
            seen = Seen(lambda pages: len(pages) >= 5)
            await scrape([Target("e", (server.node,))], seen, intervals={METRICS: 0.02}, stop=seen.stop)
            return seen.pages

    pages = asyncio.run(run())
    assert most == 1
    assert number <= len(pages) + 1  # stopping may meet one request under way
    assert [page.arrived for page in pages] == sorted(page.arrived for page in pages)


def test_an_interval_may_change_while_pages_come() -> None:
    """The time to the next page is what the table holds after this one: set to a day, none comes, while another source goes on."""

    async def run() -> list[Page]:
        intervals = {LOADS: 0.01, METRICS: 0.01}

        def enough(pages: list[Page]) -> bool:
            if any(page.source is METRICS for page in pages):
                intervals[METRICS] = 86_400.0
            return sum(page.source is LOADS for page in pages) >= 20

        async with serving(engine) as server:
            seen = Seen(enough)
            await scrape([Target("e", (server.node,))], seen, intervals=intervals, stop=seen.stop)
            return seen.pages

    pages = asyncio.run(run())
    assert sum(page.source is METRICS for page in pages) == 1


def test_stop_ends_a_request_under_way() -> None:
    """A person who presses Ctrl-C does not wait for a hanging engine."""

    async def run() -> None:
        asked = asyncio.Event()

        async def silent(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
            asked.set()
            await asyncio.Event().wait()

        async with serving(silent) as server:
            stop = asyncio.Event()
            task = asyncio.create_task(scrape([Target("e", (server.node,))], lambda page: None, stop=stop))
            await asked.wait()
            stop.set()
            await task

    asyncio.run(run())


def test_what_the_consumer_raises_ends_the_scrape() -> None:
    """A defect is not hidden."""

    def broken(page: Page) -> None:
        raise ZeroDivisionError

    async def run() -> None:
        async with serving(engine) as server:
            await scrape([Target("e", (server.node,))], broken, intervals={METRICS: 1.0}, stop=asyncio.Event())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run())
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


def test_a_live_scrape_and_its_replay_give_the_same_window(tmp_path: Path) -> None:
    """Scraped into an intake and a capture at once; the capture read back gives the same numbers at the same times."""
    steps = 0

    async def moving(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        nonlocal steps
        steps += 10
        if path != "/metrics":
            await engine(path, headers, writer)
            return
        lines = "".join(f'sglang:dp_attention_steps_total{{dp_rank="{r}",rank_state="active",tp_rank="{r}"}} {steps}\n' for r in (0, 1))
        writer.write(reply(lines.encode()))

    async def run(intake: Intake, writer: CaptureWriter) -> str:
        async with serving(moving) as server:
            seen = Seen(lambda pages: pages[-1].arrived - pages[0].arrived > 1.2 and sum(p.source is METRICS for p in pages) > 8)

            def both(page: Page) -> None:
                intake.feed(page)
                writer.write(page)
                seen(page)

            target = parse_target(server.node)
            await scrape([target], both, intervals={LOADS: 0.05, METRICS: 0.1, INFO: inf}, stop=seen.stop)
            return target.engine

    live, again = Intake(), Intake()
    with CaptureWriter(tmp_path / "x", created=0.0, redacted=False) as writer:
        name = asyncio.run(run(live, writer))
    replay(tmp_path / "x", again)
    a, b = live.window(name), again.window(name)
    assert a.has("steps_active", "running_requests")
    assert (a.ranks, a.scrapes, a.engine, a.problems) == (b.ranks, b.scrapes, b.engine, b.problems)
    assert np.array_equal(a.edges, b.edges)
    assert a.values.keys() == b.values.keys()
    assert all(np.array_equal(a.values[key], b.values[key], equal_nan=True) for key in a.values)


VLLM = (CAPTURES.parent / "vllm-0.32.0" / "slowmoe-1.prom").read_bytes()


def test_a_vllm_target_is_recognised_and_no_longer_asked_for_sglangs_pages(tmp_path: Path) -> None:
    """Its /metrics is handed on as vLLM's; once it was seen, only that is asked for. Live and replayed, the window is vLLM's, and that
    it has no /v1/loads is no problem."""

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(reply(VLLM) if path == "/metrics" else reply(b"", "404 Not Found"))

    async def run() -> tuple[list[str], list[Page]]:
        async with serving(answer) as server:
            seen = Seen(lambda pages: sum(page.source is Source.VLLM_METRICS for page in pages) >= 12)
            await scrape([Target(server.node, (server.node,))], seen, intervals={LOADS: 0.01, METRICS: 0.01, INFO: inf}, stop=seen.stop)
            return [path for path, _ in server.asked], seen.pages

    asked, pages = asyncio.run(run())
    assert set(asked[-8:]) == {"/metrics"}
    assert {page.source for page in pages if page.error is None} == {Source.VLLM_METRICS}
    live, replayed = Intake(), Intake()
    with CaptureWriter(tmp_path / "c", created=0.0, redacted=False) as writer:
        for page in pages:
            live.feed(page)
            writer.write(page)
    replay(tmp_path / "c", replayed)
    windows = [intake.window(pages[0].engine) for intake in (live, replayed)]
    assert [(w.engine.kind, w.ranks) for w in windows] == [("vllm", (0, 1))] * 2
    assert not any("v1/loads" in str(problem) for w in windows for problem in w.problems)


def test_machines_are_read_beside_the_engine_and_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter's page is asked for in full and the engine's key is not for it; this node's processes are a page of their own."""
    cards = b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 50\n'

    async def run() -> tuple[list[Page], list[tuple[str, dict[str, str]]]]:
        async with serving(always(reply(PAGE))) as engine, serving(always(reply(cards))) as exporter:
            target = with_machines(Target("e", (engine.node,), KEY), [f"{exporter.node}/gpu/metrics"], frozenset({Source.PROCFS}))
            seen = Seen(lambda pages: {p.source for p in pages} >= {METRICS, Source.DCGM, Source.PROCFS})
            await scrape([target], seen, intervals={METRICS: 60.0}, stop=seen.stop)
            return seen.pages, exporter.asked

    pages, asked = asyncio.run(run())
    first = {page.source: page for page in pages}
    assert all(page.engine == "e" and page.error is None for page in first.values())
    assert first[Source.DCGM].body == cards
    assert first[Source.DCGM].node.endswith("/gpu/metrics")
    assert b"slowrank.procfs/1" in first[Source.PROCFS].body
    assert [path for path, _ in asked] == ["/gpu/metrics"]
    assert not any("authorization" in headers for _, headers in asked)


def test_a_driver_that_is_not_there_stops_the_scrape_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """--nvml on a node without it is a usage error, not a missing page every two seconds."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    target = with_machines(Target("e", ("http://127.0.0.1:9",)), [], frozenset({Source.NVML}))
    with pytest.raises(ConfigError, match=r"slowrank\[nvml\]"):
        asyncio.run(scrape([target], lambda page: None, stop=asyncio.Event()))


def test_a_look_that_fails_is_a_page_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that has stopped answering: what it said, as for any other page."""

    def look() -> bytes:
        raise SourceError("the driver does not answer any more")

    monkeypatch.setattr("collector.hardware.local.lookers", lambda sources: [(Source.NVML, look)] if sources else [])
    target = with_machines(Target("e", ("http://127.0.0.1:9",)), [], frozenset({Source.NVML}))
    seen = Seen(bool)
    asyncio.run(scrape([target], seen, intervals={}, stop=seen.stop))
    assert seen.pages[0].error == "nvml: the driver does not answer any more"
    assert seen.pages[0].status == 0
