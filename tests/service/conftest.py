"""A loopback server that answers as it is told, pages of an engine that plays a fault, and the service without its process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.capture import read_capture
from slowrank.config.load import load
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service.plan import Plan, prepare
from slowrank.service.service import Service
from slowrank.service.watch import Watch
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

Reply = tuple[int, bytes, dict[str, str]]


class Server:
    """`heads` are the headers of all requests, `paths` their paths, in order."""

    def __init__(self, answers: Iterable[Reply] | Callable[[str], Reply | None]) -> None:
        self.heads: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = ""
        self._by_path = answers if callable(answers) else None
        self._script = iter(()) if callable(answers) else iter(answers)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                self.paths.append(head[0].split(" ")[1])
                self.heads.append({k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)})
                reply = self._by_path(self.paths[-1]) if self._by_path else next(self._script)
                if reply is None:
                    await asyncio.sleep(3600)  # hangs
                else:
                    status, body, headers = reply
                    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
                    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
                    await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def _serving(answers: Any) -> AsyncIterator[Server]:
    server = Server(answers)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        await server.close()
        await listener.wait_closed()


@pytest.fixture
def serving() -> Any:
    """`async with serving(replies or function of the path) as server`; a reply of None hangs."""
    return _serving


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Plan]:
    """The plan of a configuration's text; the incident file is in the test's folder."""

    def make(text: str, **environ: str) -> Plan:
        path = tmp_path / "slowrank.toml"
        path.write_text(text)
        return prepare(load(path, environ))

    return make


FAULT = (180.0, 240.0)
"""s after the start at which the fault of the story begins, and how long it acts."""


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """22 minutes of 4 ranks: 3 healthy, 4 in which rank 2's host is starved, 15 healthy again."""
    path = tmp_path_factory.mktemp("story") / "story.slowrank"
    with Recording(path) as recording:
        simulate(ClusterConfig(ranks=4, seed=5), [Scheduled("host_cpu_starved", 2, *FAULT, 1.0)], 1320.0, recording)
    return path


@pytest.fixture(scope="session")
def tell_story(story: Path) -> Callable[[Service, str, dict[str, str]], Watch]:
    """A watch of a service, under a name and labels, to which the story was told up to the middle of its fault."""

    def tell(service: Service, name: str, labels: dict[str, str]) -> Watch:
        spec = EngineSpec(name, ("http://a:1",), tuple(labels.items()))
        watch = Watch(spec, Scrape(), Diagnosis(), service.office.hear, list)

        async def play() -> None:
            pages = [replace(one, engine=name, node="http://a:1", took=0.005) for one in read_capture(story)]
            due = pages[0].arrived + 10.0
            for one in pages:
                if one.arrived > pages[0].arrived + FAULT[0] + 120.0:
                    return
                if one.arrived >= due:
                    await watch.judge()
                    due += 10.0
                watch._page(one)

        asyncio.run(play())
        return watch

    return tell
