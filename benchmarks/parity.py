"""One running engine, read four ways at once: do they say the same?

    python -m benchmarks.parity [--seconds 180] [--cases healthy,long_prefill] [--binaries FOLDER]

A workload cluster under a `slowrank serve`, a Prometheus and a VictoriaMetrics that scrape both (each interval is a job of its own, told
apart by the label `every`), and slowrank's own poller once for each interval, whose pages are also recorded. When the fault has acted for
so many seconds each reader is asked about the same stretch of time. Nobody but this script knows the fault. The servers are taken from
PATH, or from the folder of --binaries. Prints the table of docs/prometheus.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.served import serving
from collector import scrape
from collector.capture import CaptureWriter, replay
from collector.intake import Intake
from collector.model import Page, Source, Window
from collector.prometheus.api import Api, Server
from collector.prometheus.matchers import Matcher
from collector.prometheus.read import Scope, read
from diagnose.engine import diagnose
from workload.cluster import Cluster
from workload.config import ClusterConfig

INTERVALS = (1.0, 5.0, 15.0, 30.0)
CASES: Mapping[str, int | None] = {"healthy": None, "host_cpu_starved": 5, "context_length_skew": 0, "expert_hotspot": 3, "long_prefill": 2}
"""Fault and the rank that it acts on: one of the host, one that lasts in the load, one of the layout, one that comes with the prompts."""

WARM = 20.0
"""s between the start of all readers and the fault: all of them have scraped once at 15 s."""

SETTLE = 10.0
"""s between the fault and the stretch that is judged, so that all of it lies in the fault."""

READERS = ("live", "capture", "Prometheus", "VictoriaMetrics")


def main() -> None:
    """Play the cases, and print a line for each and interval."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--ranks", type=int, default=8)
    asked.add_argument("--seconds", type=float, default=180.0, help="length of the stretch that is judged")
    asked.add_argument("--cases", default=",".join(CASES))
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--binaries", type=Path, help="folder with prometheus and victoria-metrics")
    given = asked.parse_args()
    if unknown := set(given.cases.split(",")) - CASES.keys():
        asked.error(f"no case {unknown.pop()!r}; there are {', '.join(CASES)}")
    print(f"| fault | scraped every | {' | '.join(READERS)} |\n|---|---|{'---|' * len(READERS)}", flush=True)
    for case in given.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            for every, windows in _play(Path(folder), case, given).items():
                print(f"| `{case}` | {every:g} s | {' | '.join(map(_said, windows))} |", flush=True)
                _differ(windows)


def _said(window: Window | None) -> str:
    """A verdict in a cell: its class, cause and ranks, and the share of step time that the cause costs."""
    if window is None:
        return "no window"
    found = diagnose(window).verdict
    ranks = f" {','.join(map(str, found.ranks))}" if found.ranks else ""
    share = found.lost_time.by_cause.get(found.cause or "")
    return f"{found.klass.value}, {found.cause}{ranks}, {share:.1%}" if found.cause and share is not None else found.klass.value


def _differ(windows: Sequence[Window | None]) -> None:
    """In full, on the error output, what readers say that do not say what the live one does."""
    verdicts = [None if window is None else diagnose(window).verdict for window in windows]
    for reader, window, verdict in zip(READERS, windows, verdicts, strict=True):
        first = verdicts[0]
        if verdict is None or first is None or (verdict.klass, verdict.cause, verdict.ranks) != (first.klass, first.cause, first.ranks):
            said = (
                "no window" if verdict is None or window is None else f"{verdict.summary} {[str(problem) for problem in window.problems]}"
            )
            print(f"{reader}: {said}", file=sys.stderr, flush=True)


def _play(folder: Path, case: str, given: argparse.Namespace) -> dict[float, list[Window | None]]:
    """Interval to the windows of each reader."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(ClusterConfig(ranks=given.ranks, seed=given.seed)))
        ours = stack.enter_context(serving(folder, f'[[engines]]\nnodes = ["{cluster.url}"]\n')).url
        config = folder / "scrape.yml"
        config.write_text(json.dumps({"scrape_configs": list(_jobs(cluster.url, ours))}))  # JSON is YAML
        prometheus = stack.enter_context(_prometheus(folder, config, given.binaries))
        victoria = stack.enter_context(_victoria(folder, config, given.binaries))
        live = {every: Intake(depth_s=WARM + SETTLE + given.seconds + 60) for every in INTERVALS}
        start, end = asyncio.run(_watched(cluster, case, live, folder, given.seconds))
        _get(f"{victoria}/internal/force_flush")
        found: dict[float, list[Window | None]] = {}
        for every, intake in live.items():
            again = Intake(depth_s=WARM + SETTLE + given.seconds + 60)
            replay(folder / f"{every:g}.slowrank", again)
            stored = [asyncio.run(_stored(url, start, end, every)) for url in (prometheus, victoria)]
            found[every] = [*(one.window(one.engines()[0], end - start, end) for one in (intake, again)), *stored]
        return found


async def _watched(cluster: Cluster, case: str, live: Mapping[float, Intake], folder: Path, seconds: float) -> tuple[float, float]:
    """All pollers at once, with the fault; the stretch to judge, in unix seconds."""
    stop, target = asyncio.Event(), scrape.parse_target(cluster.url)
    writers = {every: CaptureWriter(folder / f"{every:g}.slowrank", created=time.time()) for every in live}

    def taker(every: float) -> None:
        def take(page: Page) -> None:
            live[every].feed(page)
            writers[every].write(page)

        intervals = {Source.SGLANG_LOADS: every, Source.SGLANG_METRICS: every, Source.SGLANG_SERVER_INFO: math.inf}
        tasks.append(asyncio.create_task(scrape.scrape([target], take, intervals=intervals, stop=stop)))

    tasks: list[asyncio.Task[None]] = []
    for every in live:
        taker(every)
    await asyncio.sleep(WARM)
    if (rank := CASES[case]) is not None:
        cluster.inject(case, rank=rank)
    await asyncio.sleep(SETTLE)
    start = time.time()
    await asyncio.sleep(seconds)
    end = time.time()
    stop.set()
    await asyncio.gather(*tasks)
    for writer in writers.values():
        writer.close()
    cluster.check()
    return start, end


async def _stored(url: str, start: float, end: float, every: float) -> Window | None:
    async with Api(Server(url)) as api:
        answer = await read(api, Scope(start, end, (Matcher("every", "=", f"{every:g}s"),)))
    return answer.windows[0] if answer.windows else None


def _jobs(engine: str, ours: str) -> Iterator[dict[str, object]]:
    """Every page at every interval."""
    for every in INTERVALS:
        for name, url, path, form in (
            ("sglang", engine, "/metrics", {}),
            ("loads", engine, "/v1/loads", {"params": {"format": ["prometheus"]}}),
            ("slowrank", ours, "/metrics", {}),
        ):
            yield {
                "job_name": f"{name}-{every:g}",
                "scrape_interval": f"{every:g}s",
                "scrape_timeout": f"{min(every, 10):g}s",
                "metrics_path": path,
                "static_configs": [{"targets": [urlsplit(url).netloc], "labels": {"every": f"{every:g}s"}}],
                **form,
            }


@contextmanager
def _prometheus(folder: Path, config: Path, binaries: Path | None) -> Iterator[str]:
    address = _free()
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}", f"--web.listen-address={address}"]
    with _server(folder, ("prometheus",), options, binaries, f"http://{address}/-/ready"):
        yield f"http://{address}"


@contextmanager
def _victoria(folder: Path, config: Path, binaries: Path | None) -> Iterator[str]:
    address = _free()
    options = [f"-promscrape.config={config}", f"-storageDataPath={folder / 'victoria'}", f"-httpListenAddr={address}"]
    names = ("victoria-metrics", "victoria-metrics-prod")
    with _server(folder, names, [*options, "-search.latencyOffset=0s"], binaries, f"http://{address}/health"):
        yield f"http://{address}"


@contextmanager
def _server(folder: Path, names: Sequence[str], options: Sequence[str], binaries: Path | None, ready: str) -> Iterator[None]:
    here = (
        [str(binaries / name) for name in names if (binaries / name).exists()] if binaries else list(filter(None, map(shutil.which, names)))
    )
    if not here:
        raise SystemExit(f"no {names[0]} on PATH; name its folder with --binaries")
    with (folder / f"{names[0]}.log").open("wb") as log:
        process = subprocess.Popen([here[0], *options], stdout=log, stderr=log)
    try:
        for _ in range(300):
            try:
                _get(ready)
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise SystemExit((folder / f"{names[0]}.log").read_text(errors="replace")[-2000:])
        yield
    finally:
        process.terminate()
        process.wait(30)


def _free() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _get(url: str) -> None:
    with urllib.request.urlopen(url, timeout=10) as reply:
        reply.read()


if __name__ == "__main__":
    main()
