"""What one sidecar takes for many engines: CPU, memory, lateness of scrapes.

    python benchmarks/fleet.py --engines 50 --seconds 60

The engines are one process that answers with recorded pages of two ranks, so they cost little; `slowrank serve` is the real one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

CAPTURES = Path(__file__).parents[1] / "tests" / "captures" / "sglang-0.5.23"
WARM = 20.0
"""s that are not counted: imports, first windows."""


def main() -> None:
    """Run and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--engines", type=int, default=50)
    asked.add_argument("--seconds", type=float, default=60.0)
    asked.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = asked.parse_args()
    if args.serve:
        asyncio.run(_engines(args.engines))
        return
    engines = subprocess.Popen([sys.executable, __file__, "--serve", "--engines", str(args.engines)], stdout=subprocess.PIPE, text=True)
    assert engines.stdout is not None
    ports = json.loads(engines.stdout.readline())
    try:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder), ports, args.seconds)
    finally:
        engines.terminate()
        engines.wait(10)


async def _engines(count: int) -> None:
    page = (CAPTURES / "tp4-dp2-ep4.prom").read_bytes()
    loads = json.dumps(json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = loads if b" /v1/loads" in head else page
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.Event().wait()


def _measure(folder: Path, ports: list[int], seconds: float) -> None:
    (folder / "t.json").write_text(json.dumps([{"targets": [f"127.0.0.1:{p}"], "labels": {"engine": f"e{p}"}} for p in ports]))
    config = folder / "slowrank.toml"
    config.write_text('[service]\nlisten = "127.0.0.1:0"\nlog_format = "json"\n[[discovery.files]]\npaths = ["t.json"]\n')
    process = subprocess.Popen([sys.executable, "-m", "slowrank", "serve", "--config", str(config)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        url = json.loads(process.stderr.readline())["url"]
        time.sleep(WARM)
        before, began = _look(process.pid, url), time.monotonic()
        time.sleep(seconds)
        after, took = _look(process.pid, url), time.monotonic() - began
    finally:
        process.terminate()
        process.stderr.close()
        process.wait(20)
    pages = {s: after[s] - before[s] for s in ("loads", "metrics")}
    print(f"{len(ports)} engines of 2 ranks, {took:.0f} s")
    print(
        f"CPU {(after['cpu'] - before['cpu']) / took:.0%} of a core, memory {after['rss']:.0f} MB (after {WARM:.0f} s: {before['rss']:.0f})"
    )
    for source, count in pages.items():
        late = (after[f"{source}_late"] - before[f"{source}_late"]) / max(count, 1)
        print(f"{source}: {count / took:.1f} pages a second, {late * 1e3:.1f} ms late in the mean")
    print(f"verdicts: {(after['diagnoses'] - before['diagnoses']) / took:.1f} a second")
    print(f"/metrics of its own: {after['page_ms']:.0f} ms, {after['page_kb']:.0f} kB")


def _look(pid: int, url: str) -> dict[str, float]:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    began = time.monotonic()
    with urllib.request.urlopen(url + "metrics", timeout=30) as reply:
        page = reply.read().decode()
    took = time.monotonic() - began
    found = {
        "cpu": (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"),
        "rss": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024,  # type: ignore[index]
        "page_ms": took * 1e3,
        "page_kb": len(page) / 1e3,
        "diagnoses": _sum(page, "slowrank_diagnoses_total", ""),
    }
    for source in ("loads", "metrics"):
        found[source] = _sum(page, "slowrank_scrapes_total", f'source="{source}"')
        found[f"{source}_late"] = _sum(page, "slowrank_scrape_late_seconds_total", f'source="{source}"')
    return found


def _sum(page: str, name: str, label: str) -> float:
    return sum(float(value) for labels, value in re.findall(rf"^{name}\{{([^\n]*)\}} (\S+)$", page, re.MULTILINE) if label in labels)


if __name__ == "__main__":
    main()
