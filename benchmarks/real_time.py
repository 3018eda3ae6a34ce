"""What real time takes of a machine with many ranks, and how steady its steps are, beside the same engine in virtual time.

    python -m benchmarks.real_time [--ranks 64] [--seconds 60]

Prints the memory of all processes (PSS), the CPU time that they use, and the step time second by second: mean, and deviation as a share of
the mean. In virtual time the steps vary with the traffic alone; what real time has beyond that is its jitter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.served import cpu
from collector.capture import read_capture
from collector.intake import Intake
from collector.model import Page, Source, Window
from collector.scrape import parse_target, scrape
from diagnose import lockstep
from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

WARM_UP = 20.0
"""Seconds in which the engine fills with requests, as `chat` does in a dozen."""


def family(root: int) -> Iterator[int]:
    """The process and all that came of it."""
    yield root
    for task in Path(f"/proc/{root}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def memory() -> float:
    """MiB of this process and its children, shared pages counted once."""
    lines = (line for pid in family(os.getpid()) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def used() -> float:
    """CPU seconds of the children so far."""
    return sum(cpu(pid) for pid in family(os.getpid()) if pid != os.getpid())


def feed(intake: Intake, page: Page) -> None:
    """Load snapshots alone, as they come each second."""
    if page.source is Source.SGLANG_LOADS:
        intake.feed(page)


async def watched(url: str, seconds: float) -> Window:
    """A running engine's window, from its load snapshots alone."""
    intake, stop = Intake(depth_s=seconds + 1.0), asyncio.Event()
    reading = asyncio.create_task(scrape([parse_target(url)], partial(feed, intake), stop=stop))
    await asyncio.sleep(seconds)
    stop.set()
    await reading
    return intake.window(parse_target(url).engine, seconds - 2.0)


def played(config: ClusterConfig, seconds: float) -> Window:
    """The same in virtual time."""
    intake = Intake(depth_s=WARM_UP + seconds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        with Recording(path) as recording:
            simulate(config, [], WARM_UP + seconds, recording)
        for page in read_capture(path):
            feed(intake, page)
    (engine,) = intake.engines()
    return intake.window(engine, seconds - 2.0)


def steps(window: Window) -> str:
    """Mean step and its deviation from one interval to the next, as a share of it."""
    series = lockstep.cadence_series(window)
    series = series[np.isfinite(series)]
    apart = np.diff(series) / np.sqrt(2.0)  # what changes slowly, as the load does, is no jitter
    return f"{1e3 * series.mean():.1f} ms a step, jitter {apart.std() / series.mean():.1%} in {len(series)} intervals"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    config = ClusterConfig(ranks=asked.ranks)
    print(f"virtual time  {steps(played(config, asked.seconds))}")
    with Cluster(config) as cluster:
        time.sleep(WARM_UP)
        before = used()
        window = asyncio.run(watched(cluster.url, asked.seconds))
        cores = (used() - before) / asked.seconds
        print(f"real time     {steps(window)}; {asked.ranks} ranks on {os.cpu_count()} cores: {memory():,.0f} MiB, {cores:.2f} cores used")


if __name__ == "__main__":
    main()
