"""What being read costs an engine: its step time and its CPU with and without the sidecar, in pairs whose order is drawn.

    nice -n -10 python -m benchmarks.engine_cost --ranks 8 --pairs 12 --seconds 20

A workload with virtual cards steps on, and one `slowrank serve` with its defaults reads it or is stopped (SIGSTOP) in turn, so that both
arms see the same machine minutes apart at most. The step time is the engine's own (decode moments of /v1/loads, which both arms ask for
twice), CPU is the kernel's. Intervals are Student's for the mean of the pairs' differences, 95 %.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

from benchmarks.served import Served, serving, value, values
from workload.cluster import Cluster
from workload.config import ClosedLoop, ClusterConfig, Lengths, Traffic

STEADY = Traffic(
    arrivals=ClosedLoop(users_per_rank=8, think=0.5),
    prompt=Lengths(median=5000, sigma=0.1, low=4000, high=6000),
    fresh=Lengths(median=64, sigma=0.1, low=32, high=128),
    output=Lengths(median=2000, sigma=0.3, low=500, high=4000),
)
"""Batches that hardly change: what is looked for is smaller than what chat's own ups and downs do to a step."""

WARM = 30.0
"""s before the first pair: requests fill up, and the sidecar finds its pace."""

SETTLE = 3.0
"""s after each change of arm."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One stretch of time."""

    step: float  # s, mean of the ranks
    front: float  # s of CPU of the process that serves the pages, a second
    ranks: float  # s of CPU of all rank processes, a second


def main() -> None:
    """Run and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--ranks", type=int, default=8)
    asked.add_argument("--pairs", type=int, default=12)
    asked.add_argument("--seconds", type=float, default=20.0)
    asked.add_argument("--seed", type=int, default=0)
    args = asked.parse_args()
    order = random.Random(args.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that what it started ends with it
    cluster = Cluster(ClusterConfig(ranks=args.ranks, seed=args.seed, traffic=STEADY))
    with tempfile.TemporaryDirectory() as folder, cluster, serving(Path(folder), f'[[engines]]\nnodes = ["{cluster.url}"]\n') as sidecar:
        time.sleep(WARM)
        with_it: list[Arm] = []
        without: list[Arm] = []
        spent: list[dict[str, float]] = []
        for _ in range(args.pairs):
            for reading in order.sample([True, False], 2):
                sidecar.hold(not reading)
                time.sleep(SETTLE)
                before = _spent(sidecar) if reading else {}
                (with_it if reading else without).append(_stretch(cluster, args.ranks, args.seconds))
                if reading:
                    after = _spent(sidecar)
                    spent.append({key: (after[key] - before[key]) / args.seconds for key in after})
        sidecar.hold(False)
        interval = value(sidecar.page(), "slowrank_scrape_interval_seconds", 'source="metrics"')
    _print(with_it, without, spent, interval)


def _stretch(cluster: Cluster, ranks: int, seconds: float) -> Arm:
    before, front, others = _moments(cluster.url), _cpu(cluster.pid("frontend")), sum(_cpu(cluster.pid(f"rank{r}")) for r in range(ranks))
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    front = (_cpu(cluster.pid("frontend")) - front) / took
    others = (sum(_cpu(cluster.pid(f"rank{r}")) for r in range(ranks)) - others) / took
    after = _moments(cluster.url)
    steps = [(after[r][1] - before[r][1]) / (after[r][0] - before[r][0]) for r in before]
    return Arm(statistics.mean(steps), front, others)


def _moments(url: str) -> dict[int, tuple[float, float]]:
    """For each rank decode steps and the seconds that they took, since the start."""
    loads = json.loads(_get(url + "/v1/loads"))["loads"]
    return {load["dp_rank"]: (load["decode_moments"][0], load["decode_moments"][2] / 1e6) for load in loads}


def _cpu(pid: int) -> float:
    """s of CPU, to the nanosecond: clock ticks of 10 ms are too coarse for a front end that uses little."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


def _spent(sidecar: Served) -> dict[str, float]:
    """What the sidecar says that it asked for: requests, bytes and the engine's time by source."""
    page, found = sidecar.page(), {}
    for key, name in (
        ("requests", "slowrank_scrapes_total"),
        ("bytes", "slowrank_scrape_bytes_total"),
        ("reply s", "slowrank_scrape_seconds_total"),
    ):
        for source in ("loads", "metrics"):
            found[f"{key} of {source}"] = sum(values(page, name, f'source="{source}"'))
    return found


def _print(with_it: Sequence[Arm], without: Sequence[Arm], spent: Sequence[dict[str, float]], interval: float) -> None:
    print(f"{len(with_it)} pairs on {os.cpu_count()} cores, load average {os.getloadavg()[1]:.1f}")
    steps = [a.step / b.step - 1 for a, b in zip(with_it, without, strict=True)]
    print(f"step time without {statistics.mean(a.step for a in without) * 1e3:.2f} ms; with the sidecar {_interval(steps, 1e2, '%')}")
    for name, of in (("front end", "front"), ("ranks", "ranks")):
        pairs = [(getattr(a, of), getattr(b, of)) for a, b in zip(with_it, without, strict=True)]
        print(
            f"CPU of the {name}: without {statistics.mean(b for _, b in pairs):.2%} of a core; more with the sidecar"
            f" {_interval([a - b for a, b in pairs], 1e2, '% of a core')}"
        )
    for key in spent[0]:
        print(f"{key}: {statistics.mean(one[key] for one in spent):,.3f} a second")
    print(f"/metrics is read each {interval:.1f} s in the end; the budget is 0.5 % of a core")


def _interval(values: Sequence[float], times: float, unit: str) -> str:
    mean = statistics.mean(values)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean * times:+.3f} {unit} ({(mean - half) * times:+.3f} to {(mean + half) * times:+.3f})"


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return str(reply.read().decode())


if __name__ == "__main__":
    main()
