"""A healthy and three faulty runs of the workload on this machine's GPUs, each in a capture file, with what slowrank says about it.

One command on a machine with torch and at least one CUDA card; under ten minutes. The captures are named after the card and hold what a
scraper saw; what was injected is in labels.jsonl beside them. `--dry-run` walks the same path on the CPU, a few seconds a run: it shows
that the script works, and says nothing about a GPU. Ranks share one card unless there is a card for each.

    python benchmarks/gpu_run.py [--out gpu-run] [--ranks 8] [--seconds 45] [--dry-run]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from collector.capture import CaptureWriter
from collector.intake import Intake
from collector.model import Page, Window
from collector.scrape import parse_target, scrape
from diagnose.case import Case
from diagnose.engine import diagnose
from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.device.names import accelerator
from workload.nursery import ClusterError

FAULTS = ("context_length_skew", "slow_rank", "expert_hotspot")  # load, single point, structural
SETTLE_S = 5.0


async def record(cluster: Cluster, path: Path, seconds: float) -> Window:
    """Scrapes for so long into a capture; the window is what a diagnosis would read."""
    target, intake, stop = parse_target(cluster.url), Intake(), asyncio.Event()
    with CaptureWriter(path, created=time.time()) as writer:

        def keep(page: Page) -> None:
            writer.write(page)
            intake.feed(page)

        task = asyncio.create_task(scrape([target], keep, stop=stop))
        await asyncio.sleep(seconds)
        stop.set()
        await task
    return intake.window(target.engine, seconds)


def run(config: ClusterConfig, out: Path, seconds: float, settle: float) -> list[Path]:
    """All scenarios in one cluster; each begins when the last one's effect is over. Returns the captures."""
    card = re.sub(r"[^a-z0-9]+", "-", accelerator(config).lower()).strip("-")
    captures = []
    with Cluster(config) as cluster:
        print(f"{config.ranks} ranks on {accelerator(config)}: {cluster.url}", flush=True)
        past: Window | None = None
        for fault in (None, *FAULTS):
            if fault is not None:
                cluster.inject(fault, rank=config.ranks - 1)
            time.sleep(settle)
            path = out / f"{fault or 'healthy'}-{card}.slowrank"
            window = asyncio.run(record(cluster, path, seconds))
            cluster.clear()
            cluster.check()
            captures.append(path)
            verdict = diagnose(window, past).verdict
            step = Case(window, past).step_time
            said = f"{verdict.klass.value} {verdict.cause or ''}"
            print(f"{fault or 'healthy':<20} step {1e3 * step if step else float('nan'):7.1f} ms   {said}", flush=True)
            past = past or window
            time.sleep(settle)
    return captures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-run"), help="a folder that does not hold captures of this name yet")
    parser.add_argument("--ranks", type=int, default=None, help="8; 2 in a dry run")
    parser.add_argument("--seconds", type=float, default=None, help="of each recording: 45; 3 in a dry run")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU instead of a GPU")
    asked = parser.parse_args(arguments)
    ranks = asked.ranks or (2 if asked.dry_run else 8)
    seconds = asked.seconds or (3.0 if asked.dry_run else 45.0)
    asked.out.mkdir(parents=True, exist_ok=True)
    config = ClusterConfig(ranks=ranks, device="cpu" if asked.dry_run else "cuda", labels=asked.out / "labels.jsonl")
    if not asked.dry_run:
        from workload.device import cuda

        if (why := cuda.refusal()) is not None:
            print(why, file=sys.stderr)
            return 2
    try:
        captures = run(config, asked.out, seconds, 0.5 if asked.dry_run else SETTLE_S)
    except ClusterError as error:
        print(f"the workload failed: {error}", file=sys.stderr)
        return 1
    print("captures: " + ", ".join(map(str, captures)))
    if asked.dry_run:
        print("a dry run on the CPU: no figure above is a GPU's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
