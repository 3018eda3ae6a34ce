"""How the sidecar lives through faults that come and go: memory, tasks, descriptors, cadence, and whether incidents are as many as faults.

    python benchmarks/soak.py --ranks 4 --minutes 5

A real workload, a real `slowrank serve`, a webhook on loopback. The faults are known to this script alone; it prints figures, no verdict.
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from workload.cluster import Cluster
from workload.config import ClusterConfig

FAULTS = ("host_cpu_starved", "context_length_skew")
"""One of the host and one of the load, in turn, each on another rank than the last."""

EVERY = 5.0
"""s between two looks at the process."""


def main() -> None:
    """Run and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--ranks", type=int, default=4)
    asked.add_argument("--minutes", type=float, default=5.0)
    asked.add_argument("--on", type=float, default=60.0, help="s that a fault acts")
    asked.add_argument("--off", type=float, default=30.0, help="s between two faults, and before the first")
    asked.add_argument("--seed", type=int, default=0)
    args = asked.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        _webhook() as (hook, told),
        Cluster(ClusterConfig(ranks=args.ranks, seed=args.seed)) as cluster,
    ):
        url, process = _serve(Path(folder), cluster.url, hook)
        try:
            looks, truth = _play(cluster, process, url, args)
            page = _get(url + "/metrics")
            incidents = json.loads(_get(url + "/api/v1/incidents"))["incidents"]
        finally:
            process.terminate()
            code = process.wait(20)
    _print(looks, truth, told, incidents, page, code)


def _play(
    cluster: Cluster, process: subprocess.Popen[str], url: str, args: argparse.Namespace
) -> tuple[list[dict[str, float]], list[tuple[str, int, float]]]:
    begun, truth, looks = time.monotonic(), [], []
    ranks = itertools.cycle(range(args.ranks))
    faults = itertools.cycle(FAULTS)
    change, acting = begun + args.off, False
    while (now := time.monotonic()) < begun + 60 * args.minutes:
        cluster.check()
        if now >= change:
            if acting:
                cluster.clear()
            else:
                fault, rank = next(faults), next(ranks)
                cluster.inject(fault, rank=rank)
                truth.append((fault, rank, time.time()))
            acting = not acting
            change = now + (args.on if acting else args.off)
        looks.append(_look(process.pid, url))
        time.sleep(EVERY)
    if acting:
        cluster.clear()
    return looks, truth


def _look(pid: int, url: str) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    began = time.monotonic()
    page = _get(url + "/metrics")
    took = time.monotonic() - began
    return {
        "rss": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024,  # type: ignore[index]
        "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),  # type: ignore[index]
        "fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "tasks": _value(page, "slowrank_tasks"),
        "page_ms": took * 1e3,
        "series": sum(not line.startswith("#") for line in page.splitlines()),
    }


def _value(page: str, name: str) -> float:
    found = re.search(rf"^{name}(?:\{{[^\n]*\}})? (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else float("nan")


def _sums(page: str, name: str, source: str) -> float:
    return sum(float(v) for v in re.findall(rf'^{name}\{{[^\n]*source="{source}"[^\n]*\}} (\S+)$', page, re.MULTILINE))


def _print(looks: list[dict[str, float]], truth: list[Any], told: list[Any], incidents: list[Any], page: str, code: int) -> None:
    print(f"{len(looks)} looks, exit code {code}")
    for name in ("rss", "threads", "fds", "tasks", "series", "page_ms"):
        values = [look[name] for look in looks]
        fifth = max(1, len(values) // 5)
        print(
            f"{name:<8} first fifth {statistics.median(values[:fifth]):8.1f}   last fifth {statistics.median(values[-fifth:]):8.1f}"
            f"   most {max(values):8.1f}"
        )
    print("rss by minute:", " ".join(f"{look['rss']:.0f}" for look in looks[:: round(60 / EVERY)]))
    for source in ("loads", "metrics"):
        pages = _sums(page, "slowrank_scrapes_total", source)
        if pages:
            late, spent = _sums(page, "slowrank_scrape_late_seconds_total", source), _sums(page, "slowrank_scrape_seconds_total", source)
            print(f"{source:<8} {pages:.0f} pages, {late / pages * 1e3:.1f} ms late and {spent / pages * 1e3:.1f} ms long in the mean")
    cpu, made = _value(page, "slowrank_diagnosis_seconds_total"), _value(page, "slowrank_diagnoses_total")
    print(f"diagnosis {made:.0f} verdicts, {cpu / max(made, 1) * 1e3:.1f} ms of CPU each")
    print(f"faults {len(truth)}: {', '.join(f'{fault} on {rank}' for fault, rank, _ in truth)}")
    confirmed = [i for i in incidents if i["confirmed"]]
    print(f"incidents {len(incidents)}, of which {len(confirmed)} confirmed (a cause that returns within 12 min is the same one):")
    for i in reversed(incidents):
        onsets = [when for fault, _, when in truth if fault == i["cause"] and when <= _unix(i["opened"])]
        after = {name: _unix(i[name]) - max(onsets) for name in ("opened", "confirmed") if i[name] and onsets}
        took = ", ".join(f"{name} {seconds:.0f} s after onset" for name, seconds in after.items()) or "no fault explains it"
        print(f"  {i['cause']} on {i['ranks']}: {took}; now {i['state']}, {i['returns']} returns")
    print(f"alerts {len(told)}: {told}")


def _unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _serve(folder: Path, engine: str, hook: str) -> tuple[str, subprocess.Popen[str]]:
    config = folder / "slowrank.toml"
    config.write_text(
        f'[service]\nlisten = "127.0.0.1:0"\nlog_format = "json"\n[[engines]]\nnodes = ["{engine}"]\n[[alerts.webhook]]\nurl = "{hook}"\n'
    )
    process = subprocess.Popen([sys.executable, "-m", "slowrank", "serve", "--config", str(config)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        said = json.loads(line)
        if said["event"] == "slowrank serves":
            threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()
            return said["url"].rstrip("/"), process
    raise SystemExit("slowrank serve did not start")


def _drain(lines: Iterator[str]) -> None:
    for line in lines:
        if '"level": "info"' not in line:
            print("log:", line.rstrip())


@contextmanager
def _webhook() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    told: list[tuple[str, str]] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            told.append((body["status"], body["commonLabels"]["alertname"]))
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


if __name__ == "__main__":
    main()
