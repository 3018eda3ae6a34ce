"""The sidecar that is soaked, looked at from outside; and a webhook that writes down what it is told."""

from __future__ import annotations

import http.server
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.served import Served, cpu, value


class Told(NamedTuple):
    """One notification."""

    at: float  # unix seconds
    status: str
    alert: str
    incident: str


class Sidecar:
    """What is served on one engine, with one entry in `looks` for each look at it."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.looks: list[dict[str, float]] = []

    def page(self) -> str:
        """Its own /metrics."""
        return self._served.page()

    def incidents(self) -> list[dict[str, Any]]:
        """As its API has them, the newest first."""
        return list(json.loads(self._served.get("/api/v1/incidents?limit=200"))["incidents"])

    def look(self, engine: Sequence[int]) -> None:
        """Write down how it is. `engine`: the process ids of the workload."""
        pid = self._served.pid
        status = Path(f"/proc/{pid}/status").read_text()
        began = time.monotonic()
        page = self.page()
        took = time.monotonic() - began
        self.looks.append(
            {
                "at": began,
                "rss": self._served.memory(),
                "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),  # type: ignore[index]
                "fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
                "tasks": value(page, "slowrank_tasks"),
                "page_ms": took * 1e3,
                "series": sum(not line.startswith("#") for line in page.splitlines()),
                "cpu": cpu(pid),
                "engine_cpu": sum(map(cpu, engine)),
                "load": os.getloadavg()[0],
            }
        )


def configuration(engine: str, ranks: int, hook: str, *, metrics: str, budget: float) -> str:
    """All of slowrank's but the service itself. `hook` is told of everything, `metrics` and `budget` are keys of [scrape]."""
    gpus = ",".join(f"{r}=virtual-{r // 8}/{r % 8}" for r in range(ranks))  # the exporter's page shows nodes of 8 cards
    return (
        f'[scrape]\nmetrics = "{metrics}"\nmetrics_suspected = "{metrics}"\nbudget = {budget}\n'
        f'[[engines]]\nname = "soaked"\nnodes = ["{engine}"]\nhardware = ["{engine}/dcgm/metrics"]\ngpus = "{gpus}"\n'
        f'[[alerts.webhook]]\nurl = "{hook}"\n'
    )


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
