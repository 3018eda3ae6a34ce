"""What each kind of reply to a scrape becomes: a page kept whole, or plain words that say what to do. No assertion is on speed."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from collector.model import Page, Source

LOADS, METRICS, INFO = Source.SGLANG_LOADS, Source.SGLANG_METRICS, Source.SGLANG_SERVER_INFO
PAGE = (Path(__file__).parents[1] / "captures" / "sglang-0.5.23" / "tp4-dp2-ep4.prom").read_bytes()
KEY = "sk-hunter2"

Ask = Callable[..., Page]
Once = Callable[..., Coroutine[Any, Any, Page]]


def test_a_good_page_is_kept_whole(ask: Ask) -> None:
    """Body, status, type and the moment it was complete; no error."""
    page = ask(lambda _: (200, PAGE, {"Content-Type": "text/plain; version=0.0.4"}))
    assert (page.body, page.status, page.content_type, page.error) == (PAGE, 200, "text/plain; version=0.0.4", None)
    assert page.took >= 0
    assert page.arrived > 1.6e9
    assert (page.engine, page.source) == ("e", METRICS)


def test_what_is_asked_for_does_not_rename_series_or_cost_compression(serving: Any, once: Once) -> None:
    """No OpenMetrics in Accept, identity encoding, and the key only when there is one."""

    async def run(key: str | None) -> dict[str, str]:
        async with serving(lambda _: (200, PAGE, {})) as server:
            await once((server.url,), key=key)
            return dict(server.asked[0][1])

    headers = asyncio.run(run(None))
    assert "openmetrics" not in headers["accept"]
    assert headers["accept-encoding"] == "identity"
    assert "authorization" not in headers
    assert asyncio.run(run(KEY))["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("source", "status", "key", "words"),
    [
        (METRICS, 401, None, "--api-key-env NAME"),
        (LOADS, 401, None, "--api-key-env NAME"),
        (LOADS, 401, KEY, "is not the engine's: look at the variable of --api-key-env"),
        (LOADS, 403, KEY, "is not the engine's"),
        (METRICS, 404, None, "metrics are off: start SGLang with --enable-metrics"),
        (LOADS, 404, None, "node 0 first"),
        (LOADS, 404, None, "since 0.5.9"),
        (INFO, 404, None, "unknown"),
        (METRICS, 500, None, "PROMETHEUS_MULTIPROC_DIR"),
        (LOADS, 500, None, "engine's log"),
        (LOADS, 503, None, "not ready"),
        (LOADS, 304, None, "HTTP 304"),
    ],
)
def test_statuses_in_plain_words(ask: Ask, source: Source, status: int, key: str | None, words: str) -> None:
    """What it means and what to do; never the body, never the key."""
    page = ask(lambda _: (status, b"secret body " + KEY.encode(), {}), source, key=key)
    assert page.status == status
    assert page.body == b""
    assert page.error is not None
    assert words in page.error
    assert "http://127.0.0.1:" in page.error
    assert KEY not in repr(page)


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"<!DOCTYPE html><html>sign in", "HTML"), (b"  \n <html>", "HTML"), (b"", "empty"), (b" \n\n", "empty")],
)
def test_a_200_that_is_no_page(ask: Ask, body: bytes, words: str) -> None:
    """A login page or nothing at all."""
    for source in (METRICS, LOADS):
        page = ask(lambda _: (200, body, {}), source)
        assert words in str(page.error)
        assert page.body == b""


def test_a_body_that_breaks_off(serving: Any, once: Once) -> None:
    """Content-Length says more than comes: the page is a failure, not a short page; and it is not asked for twice."""

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE[:5000])
        await writer.drain()
        writer.close()

    async def run() -> tuple[Page, int]:
        async with serving(answer) as server:
            return await once((server.url,)), len(server.asked)

    page, asked = asyncio.run(run())
    assert "broke before the reply was complete" in str(page.error)
    assert (page.status, page.body, asked) == (0, b"", 1)


def test_a_page_of_50_mb_is_refused(ask: Ask) -> None:
    """By default the limit is 32 MiB, whether the size is declared or not."""
    page = ask(lambda _: (200, b"x" * 50_000_000, {}))
    assert "more than 33554432 bytes" in str(page.error)
    assert page.body == b""


@pytest.mark.parametrize("packed", [False, True])
def test_a_body_without_end_is_cut_at_the_limit(ask: Ask, packed: bool) -> None:
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
def test_compression_that_was_not_asked_for_is_read(ask: Ask, encoding: str) -> None:
    """A proxy may compress all the same."""
    packed = gzip.compress(PAGE) if encoding == "gzip" else zlib.compress(PAGE)
    page = ask(lambda _: (200, packed, {"Content-Encoding": encoding}))
    assert (page.body, page.error) == (PAGE, None)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ((200, b"x", {"Content-Encoding": "br"}), "Content-Encoding 'br'"),
        ((200, b"nonsense", {"Content-Encoding": "gzip"}), "damaged"),
        ((200, gzip.compress(PAGE)[:900], {"Content-Encoding": "gzip"}), "ends early"),
        (b"not http at all\r\n\r\n", "broke before"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "broke before"),
    ],
)
def test_replies_that_cannot_be_read(ask: Ask, raw: Any, words: str) -> None:
    """Unknown or damaged encodings, and what is not HTTP."""
    assert words in str(ask(lambda _: raw).error)


def test_a_mounted_app_is_followed_to_its_slash(serving: Any, once: Once) -> None:
    """307 from /metrics to /metrics/ on the same host, once, with the key."""

    async def run() -> tuple[Page, list[dict[str, str]]]:
        async with serving(lambda path: (200, PAGE, {}) if path == "/metrics/" else (307, b"", {"Location": "/metrics/"})) as server:
            return await once((server.url,), key=KEY), [headers for _, headers in server.asked]

    page, heads = asyncio.run(run())
    assert page.body == PAGE
    assert [headers["authorization"] for headers in heads] == [f"Bearer {KEY}"] * 2


@pytest.mark.parametrize(
    "to", ["http://elsewhere.example/metrics/?t=hunter2", "/login", "/metrics", "/metrics/", "//evil.example/metrics/", ""]
)
def test_no_other_redirect_is_followed(serving: Any, once: Once, to: str) -> None:
    """Another host would get the key; a loop would never end. Only the host is told."""

    async def run() -> tuple[Page, list[tuple[str, dict[str, str]]]]:
        async with serving(lambda _: (307, b"", {"Location": to})) as server:
            return await once((server.url,), key=KEY), server.asked

    page, asked = asyncio.run(run())
    assert page.error is not None
    assert "hunter2" not in page.error
    assert "redirect" in page.error or "sends us on" in page.error or "HTTP 307" in page.error
    assert len(asked) == (2 if to == "/metrics/" else 1)


def test_no_answer_in_time(ask: Ask) -> None:
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def unreachable(once: Once, node: str) -> str:
    page: Page = asyncio.run(once((node,)))
    assert page.status == 0
    assert page.error is not None
    assert page.error.startswith(f"{node}/metrics: ")
    return page.error


def test_nobody_listens(once: Once) -> None:
    """Refused: status 0, the URL, the next step."""
    assert "nothing listens there" in unreachable(once, f"http://127.0.0.1:{free_port()}")


def test_a_host_without_an_address(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that does not resolve is told apart from a port that is closed."""

    def getaddrinfo(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert "no such host" in unreachable(once, "http://no-such-host.invalid:30000")


def test_plain_http_where_tls_was_asked(once: Once) -> None:
    """https:// on a plain port."""

    def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def run() -> Page:
        listener = await asyncio.start_server(plain, "127.0.0.1", 0)
        async with listener:
            return await once((f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}",))

    assert "TLS failed; use http://" in str(asyncio.run(run()).error)


def test_a_connection_closed_before_the_reply_is_tried_once_more(ask: Ask) -> None:
    """Engines close idle connections after seconds; the request that meets this is no failure."""
    turns: list[str] = []

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        turns.append(path)
        if len(turns) == 1:
            writer.close()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PAGE) + PAGE)

    assert ask(answer).error is None
    assert len(turns) == 2

    async def never(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        turns.append(path)
        writer.close()

    turns.clear()
    assert "broke before the reply was complete" in str(ask(never).error)
    assert len(turns) == 2
