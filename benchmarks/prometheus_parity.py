"""The same past read four ways, at four scrape intervals: does each give the same verdict?

    python -m benchmarks.prometheus_parity --prometheus PATH --promtool PATH --victoria-metrics PATH

Prints the table of docs/prometheus.md: three faults and a healthy engine, 180 s simulated. "live" is the intake fed page by page at the
interval; "capture" the recorded file whole (pages each second). Both servers hold the engine's own /metrics and a sidecar's series.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from pathlib import Path

from benchmarks import backfill
from benchmarks.servers import prometheus, victoria_metrics
from collector.capture import read_capture
from collector.intake import Intake
from collector.model import Source, Window
from collector.prometheus.client import Client, Server
from collector.prometheus.read import Past, fetch, windows
from diagnose.engine import diagnose
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.recording import START, Recording
from workload.virtual_time.simulate import simulate

FAULTS = (None, "slow_rank", "context_length_skew", "expert_hotspot")
INTERVALS = (1.0, 5.0, 15.0, 30.0)
SECONDS = 180.0
SPAN = round(START * 1000), round((START + SECONDS) * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("prometheus", "promtool", "victoria-metrics"):
        parser.add_argument(f"--{name}", default=shutil.which(name) or name)
    options = parser.parse_args()
    print("| fault on rank 3 | every | capture | live | Prometheus | VictoriaMetrics | Prometheus, engine's /metrics alone |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for fault in FAULTS:
            capture = Path(folder) / f"{fault}.slowrank"
            with Recording(capture) as recording:
                schedule = [] if fault is None else [Scheduled(fault, 3, 0.0, 1e9, 1.0)]
                simulate(ClusterConfig(seed=9), schedule, SECONDS, recording, metrics_every=1.0)
            for every in INTERVALS:
                own, both = backfill.scraped(capture, every), backfill.exported(capture, every) | backfill.scraped(capture, every)
                cells = [_told(_fed(capture, 0.0)), _told(_fed(capture, every))]
                with prometheus(options.prometheus, options.promtool, backfill.openmetrics(both)) as url:
                    cells.append(_told(_asked(url)))
                with victoria_metrics(options.victoria_metrics, backfill.importable(both)) as url:
                    cells.append(_told(_asked(url)))
                with prometheus(options.prometheus, options.promtool, backfill.openmetrics(own)) as url:
                    cells.append(_told(_asked(url)))
                print(f"| {fault or 'none'} | {every:g} s | {' | '.join(cells)} |", flush=True)


def _fed(capture: Path, every: float) -> Window:
    intake = Intake(depth_s=SECONDS)
    last: dict[Source, float] = {}
    for page in read_capture(capture):
        if page.arrived >= last.get(page.source, 0.0) + every - 1e-6:
            last[page.source] = page.arrived
            intake.feed(page)
    return intake.window(intake.engines()[0], SECONDS, SPAN[1] / 1000)


def _asked(url: str) -> Window:
    async def ask() -> Past:
        async with Client(Server(url)) as client:
            return await fetch(client, *SPAN)

    (window,) = windows(asyncio.run(ask()), *SPAN)
    return window


def _told(window: Window) -> str:
    verdict = diagnose(window).verdict
    ranks = f" {','.join(map(str, verdict.ranks))}" if verdict.ranks else ""
    return f"{verdict.cause or verdict.klass.value}{ranks} {verdict.lost_time.share:.1%}"


if __name__ == "__main__":
    main()
