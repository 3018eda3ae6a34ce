"""Real servers for benchmarks: found by path, filled with a past, run on loopback on a port of their own."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

READY_S = 30.0


@contextmanager
def prometheus(binary: str, promtool: str, lines: Iterable[str]) -> Iterator[str]:
    """The URL of a Prometheus that holds what these OpenMetrics lines say."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "past.om").open("w") as file:
            file.writelines(lines)
        subprocess.run(
            [promtool, "tsdb", "create-blocks-from", "openmetrics", "past.om", "data"], cwd=folder, check=True, capture_output=True
        )
        (folder / "past.om").unlink()
        (folder / "p.yml").write_text("global: {}\n")
        with _running(
            lambda port: [
                binary,
                f"--config.file={folder}/p.yml",
                f"--storage.tsdb.path={folder}/data",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            "/-/ready",
        ) as url:
            yield url


@contextmanager
def victoria_metrics(binary: str, lines: Iterable[str]) -> Iterator[str]:
    """The URL of a VictoriaMetrics that holds what these lines say, times in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        # without the offset it hides the last 30 s
        more = ["-retentionPeriod=100y", "-search.latencyOffset=0s"]
        with _running(lambda port: [binary, f"-storageDataPath={folder}", f"-httpListenAddr=127.0.0.1:{port}", *more], "/health") as url:
            httpx.post(f"{url}/api/v1/import/prometheus", content="".join(lines).encode(), timeout=60.0).raise_for_status()
            httpx.get(f"{url}/internal/force_flush", timeout=60.0)  # what is written shows after a second otherwise
            yield url


@contextmanager
def _running(command: Callable[[int], Sequence[str]], ready: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(command(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + READY_S
        while not _answers(url + ready):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command(port)[0]} did not start; run it by hand to see why")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False
