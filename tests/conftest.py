"""Servers for tests. `serving`: one on loopback that answers as it is told. `serve`: real ones, found on PATH, or fetched as Debian
packages and unpacked (never installed) into pytest's cache.

A test that needs a real one is skipped where there is none, and the end of the run says so; with CI or SLOWRANK_REQUIRE_SERVERS set it
fails.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # speed is not what these tests are about, and a machine may be shared
settings.load_profile("untimed")

Reply = tuple[int, bytes, dict[str, str]] | bytes | None
"""Status, body and headers; bytes are sent as they are; None hangs."""

Answer = Callable[[str, dict[str, str], asyncio.StreamWriter], Awaitable[None]]
"""Given the path, the headers and where to write."""


class Server:
    """A loopback HTTP server for GET; `asked` are the paths and headers of all requests, in order."""

    def __init__(self, answers: Iterable[Reply] | Callable[[str], Reply] | Answer) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.url = ""
        self._answer = cast(Answer, answers) if inspect.iscoroutinefunction(answers) else _written(answers)
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


def _written(answers: Any) -> Answer:
    script = None if callable(answers) else iter(answers)

    async def answer(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        reply = answers(path) if script is None else next(script)
        if reply is None:
            await asyncio.Event().wait()
        writer.write(reply if isinstance(reply, bytes) else raw(*reply))

    return answer


def raw(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    """A reply as it is sent."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body


@asynccontextmanager
async def _serving(answers: Iterable[Reply] | Callable[[str], Reply] | Answer) -> AsyncIterator[Server]:
    server = Server(answers)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        await server.close()
        await listener.wait_closed()


@pytest.fixture(scope="session")
def serving() -> Any:
    """`async with serving(replies, a function of the path, or a coroutine function that writes) as server`."""
    return _serving


READY = 30.0
"""s; ready in .3 s on a quiet machine, and two cores may be shared by many."""


@dataclass(frozen=True)
class Kind:
    """One server: its Debian package, its binary in it, its names on PATH. It logs the address that `:0` became as `listening` says."""

    package: str
    binary: str
    names: tuple[str, ...]
    listening: re.Pattern[str]
    ready: str = "/-/ready"  # answers 200 once it takes queries, which is later than it listens
    home: str = ""  # where the binary looks for its own files, if it does: rewritten, as the package is not installed


SERVERS = {
    "alertmanager": Kind(
        "prometheus-alertmanager",
        "usr/bin/prometheus-alertmanager",
        ("prometheus-alertmanager", "alertmanager"),
        re.compile(r'msg="Listening on" address=(127\.0\.0\.1:[1-9]\d*)'),
        home="/usr/share/prometheus/alertmanager",  # Debian moved the templates out of the binary
    ),
    "prometheus": Kind(
        "prometheus",
        "usr/bin/prometheus",
        ("prometheus",),
        re.compile(r'msg="Listening on" address=(127\.0\.0\.1:[1-9]\d*)'),
    ),
    "promtool": Kind("prometheus", "usr/bin/promtool", ("promtool",), re.compile("$^")),  # no server, but it comes with one
    "victoria-metrics": Kind(
        "victoria-metrics",
        "usr/bin/victoria-metrics",
        ("victoria-metrics", "victoria-metrics-prod"),
        re.compile(r"starting http server at http://(127\.0\.0\.1:[1-9]\d*)/"),
        "/health",
    ),
}
"""By the name that a test asks for. Another server is one more line."""

Serve = Callable[[str, Sequence[str]], AbstractContextManager[str]]


@pytest.fixture(scope="session")
def server_binary(request) -> Callable[[str], tuple[Path, Path | None]]:
    """A server's binary by its name in SERVERS, and the folder to start it in, if that matters."""
    cache = request.config.cache.mkdir("servers")

    def find(name: str) -> tuple[Path, Path | None]:
        kind = SERVERS[name]
        on_path = next(filter(None, map(shutil.which, kind.names)), None)
        if on_path:
            return Path(on_path), None
        try:
            return _unpacked(kind, cache)
        except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = getattr(error, "stderr", "") or str(error)
            reason = f"no {name}: not on PATH as {' or '.join(kind.names)}, and {kind.package} cannot be fetched ({said.strip()[-200:]})"
        if os.environ.get("CI") or os.environ.get("SLOWRANK_REQUIRE_SERVERS"):
            pytest.fail(reason)
        _not_run.add(reason)
        pytest.skip(reason)

    return find


@pytest.fixture
def serve(server_binary, tmp_path) -> Serve:
    """`with serve(name, arguments) as url`: the server runs on loopback, on a port of its own."""

    @contextmanager
    def run(name: str, arguments: Sequence[str]) -> Iterator[str]:
        log = tmp_path / f"{name}.log"
        binary, folder = server_binary(name)
        with log.open("wb") as out:
            process = subprocess.Popen([str(binary), *arguments], cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        try:
            url = f"http://{_address(process, log, SERVERS[name].listening)}"
            _wait(url + SERVERS[name].ready)
            yield url
        finally:
            process.terminate()
            process.wait(10)

    return run


_not_run: set[str] = set()


def pytest_terminal_summary(terminalreporter) -> None:
    """Say aloud what was not tested."""
    for reason in sorted(_not_run):
        terminalreporter.write_line(f"NOT TESTED: {reason}", red=True)


def _wait(url: str) -> None:
    """Until it answers 200, READY seconds at most."""
    limit = time.monotonic() + READY
    while httpx.get(url, trust_env=False).status_code != httpx.codes.OK:
        assert time.monotonic() < limit, f"{url} is not ready after {READY:.0f} s"
        time.sleep(0.05)


def _unpacked(kind: Kind, cache: Path) -> tuple[Path, Path | None]:
    """The binary out of the package, and its folder. Unpacked aside and renamed, so that an interrupted run leaves nothing half done;
    one run at a time fetches."""
    home = cache / kind.package
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            _fetch(kind, cache, home)
    return home / kind.binary, home / kind.home.lstrip("/") if kind.home else None


def _fetch(kind: Kind, cache: Path, home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        try:
            _run(["apt-get", "download", kind.package], folder)
        except subprocess.CalledProcessError:
            _run(["apt-get", "update"], folder)  # a fresh image has no package lists
            _run(["apt-get", "download", kind.package], folder)
        (deb,) = Path(folder).glob("*.deb")
        _run(["dpkg-deb", "-x", str(deb), "unpacked"], folder)
        if kind.home:
            _move_home(Path(folder) / "unpacked" / kind.binary, kind.home)
        (Path(folder) / "unpacked").rename(home)


def _move_home(binary: Path, home: str) -> None:
    """Make a path in the binary mean the folder that it is started in. The length must stay; ./././ means the same at any length."""
    here = ("./" * len(home))[: len(home)]
    binary.write_bytes(binary.read_bytes().replace(home.encode(), here.encode()))


def _run(command: Sequence[str], folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=120)


def _address(process: subprocess.Popen[bytes], log: Path, listening: re.Pattern[str]) -> str:
    end = time.monotonic() + READY
    while time.monotonic() < end:
        found = listening.search(log.read_text(errors="replace"))
        if found:
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
