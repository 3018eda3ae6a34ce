"""Verdicts to feed a desk, a clock that does not run, and a receiver on loopback that answers as it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from collector.model import Engine
from diagnose.alerts.notification import Notification, Status
from diagnose.model import Class, EngineDiagnosis, LostTime, Severity, Share, Verdict

STEP = 10.0


def bad(cause="slow_rank", ranks=(3,), share=0.2, klass=Class.SINGLE_POINT, severity=Severity.PAGE) -> Verdict:
    """A verdict that names a cause."""
    cost = Share(share, share, share)
    summary = f"{cause} found"
    return Verdict(
        klass, cause, ranks, 0.9, summary, severity, cost, LostTime(share), remedy="Do this", runbook=f"slowrank explain {cause}"
    )


def calm() -> Verdict:
    """A healthy verdict."""
    return Verdict(Class.HEALTHY, None, (), 0.9, "", Severity.NOTE, None, LostTime(0.0, {"unexplained": 0.0}))


class Story:
    """Windows of 10 s, end to end, told to a desk."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self.now = start

    def tell(self, desk: Any, verdict: Verdict, windows: int = 1, engine: str = "http://e:30000", length: float = STEP) -> list[Any]:
        """Feed `windows` verdicts of one kind, over `length` seconds each; the events."""
        events = []
        for _ in range(windows):
            self.now += length
            events += desk.hear(EngineDiagnosis(Engine(engine, "sglang"), self.now - length, self.now, 3, (), 0.03, verdict, ()))
        return events

    def page(self, desk: Any, **how: Any) -> None:
        """An incident that is confirmed: two windows that agree."""
        self.tell(desk, bad(**how), 2)

    def end(self, desk: Any) -> None:
        """120 s of calm resolve it, 600 s more close it."""
        self.tell(desk, calm(), 73)


class Clock:
    """Two clocks that stand still: a steady one and the wall's."""

    def __init__(self) -> None:
        self.steady, self.wall = 0.0, 1_000_000.0

    def pass_(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds


@dataclass
class Server:
    """A receiver on loopback. `script` gives (status, headers) per request, the last for ever; "drop" hangs up, "hang" never answers."""

    script: list[Any] = field(default_factory=lambda: [(200, {})])
    got: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    url: str = ""
    body: str = "ok"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in head.split("\r\n")[1:] if line)}
            content = await reader.readexactly(int(headers.get("content-length", "0")))
            self.got.append((headers, json.loads(content)))
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if step == "drop":
                return
            if step == "hang":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
                while True:  # drips: each byte is in time, the answer never is
                    await asyncio.sleep(0.05)
                    await writer.drain()
            status, more = step
            lines = [f"HTTP/1.1 {status} X", f"content-length: {len(self.body)}", *(f"{k}: {v}" for k, v in more.items())]
            writer.write(("\r\n".join(lines) + "\r\n\r\n" + self.body).encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: list[Any] | None = None) -> AsyncIterator[Server]:
    """A server while it is needed."""
    server = Server() if script is None else Server(script)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/hook"
    try:
        yield server
    finally:
        listener.close()


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verdict() -> Callable[..., Verdict]:
    return bad


@pytest.fixture
def healthy() -> Verdict:
    return calm()


@pytest.fixture
def receiving() -> Any:
    return serving


@pytest.fixture
def notice() -> Callable[..., Notification]:
    """A notification; keyword arguments change it."""
    first = Notification(
        incident="0123456789abcdef",
        version=1,
        status=Status.FIRING,
        engine="http://host:30000",
        klass=Class.SINGLE_POINT,
        first_cause="slow_rank",
        first_ranks=(3,),
        severity=Severity.PAGE,
        formerly=(),
        cause="slow_rank",
        ranks=(3,),
        share=0.2,
        peak_share=0.25,
        confidence=0.9,
        summary="rank 3 is late at every exchange",
        update="",
        remedy="Compare its clocks with a peer's.",
        runbook="slowrank explain slow_rank",
        link="",
        started=999_980.0,
        last_seen=1_000_000.0,
        fired=1_000_000.0,
    )
    return lambda **changed: replace(first, **changed)
