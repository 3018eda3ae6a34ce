"""The sidecar that is soaked, as a process: started, looked at from outside, ended; and a webhook that writes down what it is told."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Told(NamedTuple):
    """One notification."""

    at: float  # unix seconds
    status: str
    alert: str
    incident: str


class Sidecar:
    """`slowrank serve` on one engine. `looks` has one entry for each look at it."""

    def __init__(self, folder: Path, engine: str, ranks: int, hook: str, *, metrics: str, budget: float, nice: int) -> None:
        gpus = ",".join(f"{r}=virtual-{r // 8}/{r % 8}" for r in range(ranks))  # the exporter's page shows nodes of 8 cards
        config = folder / "slowrank.toml"
        config.write_text(
            f'[service]\nlisten = "127.0.0.1:0"\nlog_format = "json"\n[scrape]\nmetrics = "{metrics}"\nmetrics_suspected = "{metrics}"\n'
            f'budget = {budget}\n[[engines]]\nname = "soaked"\nnodes = ["{engine}"]\n'
            f'hardware = ["{engine}/dcgm/metrics"]\ngpus = "{gpus}"\n[[alerts.webhook]]\nurl = "{hook}"\n'
        )
        command = ["nice", "-n", str(nice), sys.executable, "-m", "slowrank", "serve", "--config", str(config)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.looks: list[dict[str, float]] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            said = json.loads(line)
            if said["event"] == "slowrank serves":
                self._url = said["url"].rstrip("/")
                threading.Thread(target=_drain, args=(self._process.stderr,), daemon=True).start()
                return
        raise SystemExit("slowrank serve did not start")

    def end(self) -> int:
        """Ask it to end; its exit code."""
        self._process.terminate()
        return self._process.wait(20)

    def page(self) -> str:
        """Its own /metrics."""
        return _get(self._url + "/metrics")

    def incidents(self) -> list[dict[str, Any]]:
        """As its API has them, the newest first."""
        return list(json.loads(_get(self._url + "/api/v1/incidents?limit=200"))["incidents"])

    def look(self, engine: Sequence[int]) -> None:
        """Write down how it is. `engine`: the process ids of the workload."""
        pid = self._process.pid
        status = Path(f"/proc/{pid}/status").read_text()
        began = time.monotonic()
        page = self.page()
        took = time.monotonic() - began
        self.looks.append(
            {
                "at": began,
                "rss": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024,  # type: ignore[index]
                "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),  # type: ignore[index]
                "fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
                "tasks": value(page, "slowrank_tasks"),
                "page_ms": took * 1e3,
                "series": sum(not line.startswith("#") for line in page.splitlines()),
                "cpu": _cpu(pid),
                "engine_cpu": sum(map(_cpu, engine)),
                "load": os.getloadavg()[0],
            }
        )


def value(page: str, name: str) -> float:
    """The first sample of a family."""
    found = re.search(rf"^{name}(?:\{{[^\n]*\}})? (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else float("nan")


def _cpu(pid: int) -> float:
    """s of CPU that a process has used."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _drain(lines: Iterator[str]) -> None:
    for line in lines:
        if '"level": "info"' not in line:
            print("log:", line.rstrip(), flush=True)


@contextmanager
def webhook() -> Iterator[tuple[str, list[Told]]]:
    """An address on loopback that takes every notification, and what it was told."""
    told: list[Told] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            labels = body["commonLabels"]
            told.append(Told(time.time(), body["status"], labels["alertname"], labels["incident"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", told
    finally:
        server.shutdown()


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return str(reply.read().decode())
