"""What one sidecar takes for many engines: CPU, memory, lateness of scrapes.

    python -m benchmarks.fleet --engines 50 --seconds 60

The engines are one process that answers with recorded pages of two ranks, so they cost little; `slowrank serve` is the real one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.served import Served, cpu, serving, values

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
    command = [sys.executable, "-m", "benchmarks.fleet", "--serve", "--engines", str(args.engines)]
    engines = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
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
    with serving(folder, '[[discovery.files]]\npaths = ["t.json"]\n') as sidecar:
        time.sleep(WARM)
        before, began = _look(sidecar), time.monotonic()
        time.sleep(seconds)
        after, took = _look(sidecar), time.monotonic() - began
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


def _look(sidecar: Served) -> dict[str, float]:
    began = time.monotonic()
    page = sidecar.page()
    took = time.monotonic() - began
    found = {
        "cpu": cpu(sidecar.pid),
        "rss": sidecar.memory(),
        "page_ms": took * 1e3,
        "page_kb": len(page) / 1e3,
        "diagnoses": sum(values(page, "slowrank_diagnoses_total")),
    }
    for source in ("loads", "metrics"):
        found[source] = sum(values(page, "slowrank_scrapes_total", f'source="{source}"'))
        found[f"{source}_late"] = sum(values(page, "slowrank_scrape_late_seconds_sum", f'source="{source}"'))
    return found


if __name__ == "__main__":
    main()
