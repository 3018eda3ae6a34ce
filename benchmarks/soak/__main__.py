"""How the sidecar lives through faults that come and go: memory, tasks, descriptors, cadence, and whether incidents are as many as faults.

    python -m benchmarks.soak --ranks 4 --minutes 5
    nice -n -10 python -m benchmarks.soak --ranks 64 --minutes 62 --quiet 12 --tail 14 --on 120 --off 60 --slowdown 6 --nice -5

A real workload, a real `slowrank serve`, a webhook on loopback. The faults are known to this script alone; it prints figures, no verdict.
Each fault is another cause, or the same on another rank, so each should be one incident, told once and resolved once; the all-clear comes
12 minutes after a fault's end, which `--tail` has to leave room for.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.served import serving
from benchmarks.soak import report
from benchmarks.soak.play import PLAN, Acted, play
from benchmarks.soak.sidecar import Sidecar, configuration, webhook
from workload.cluster import Cluster
from workload.config import ClosedLoop, ClusterConfig, EngineFlags, Lengths, Traffic

TRAFFIC = Traffic(
    arrivals=ClosedLoop(users_per_rank=4),
    prompt=Lengths(median=5000, sigma=0.5, low=512, high=32_768),
    fresh=Lengths(median=64, sigma=0.5, low=8, high=256),
    output=Lengths(median=1500, sigma=0.4, low=400, high=4000),
)
"""Few and long answers: with chat's 12 users of 200 tokens a rank, 64 ranks have a prefill in every step, which is a finding of its own."""


def main() -> None:
    """Run and print."""
    args = _asked()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that what it started ends with it
    flags = EngineFlags(publish_every=max(1, round(15 / args.slowdown)))  # so that snapshots are as fresh as on cards of full speed
    cluster = Cluster(ClusterConfig(ranks=args.ranks, seed=args.seed, slowdown=args.slowdown, engine=flags, traffic=TRAFFIC))
    with tempfile.TemporaryDirectory() as folder, webhook() as (hook, told), cluster:
        config = configuration(cluster.url, args.ranks, hook, metrics=args.metrics, budget=args.budget)
        with serving(Path(folder), config, nice=args.nice) as served:
            print(f"begun {time.strftime('%H:%M:%S')}, {args}", flush=True)
            sidecar, acted = Sidecar(served), list[Acted]()
            play(cluster, sidecar, told, acted, args)
            page, incidents = sidecar.page(), sidecar.incidents()
    print(f"ended {time.strftime('%H:%M:%S')}, exit code {served.code}")
    report.resources(sidecar.looks, args.ranks)
    report.reading(page)
    report.faults(acted, incidents, told)
    print("as JSON:", json.dumps({"incidents": incidents, "told": told}))


def _asked() -> argparse.Namespace:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--ranks", type=int, default=4)
    asked.add_argument("--minutes", type=float, default=5.0, help="all of it")
    asked.add_argument("--quiet", type=float, default=0.5, help="minutes before the first fault; past the tenth the engine has a past")
    asked.add_argument("--tail", type=float, default=0.5, help="minutes without a fault at the end")
    asked.add_argument("--on", type=float, default=60.0, help="s that a fault acts")
    asked.add_argument("--off", type=float, default=30.0, help="s between two faults")
    asked.add_argument("--faults", default=",".join(PLAN), help="in this order, each on another rank, again from the start when through")
    asked.add_argument("--slowdown", type=float, default=1.0, help="of the cards: many ranks then fit on few cores")
    asked.add_argument("--metrics", default="5s", help="scrape.metrics")
    asked.add_argument(
        "--budget", type=float, default=0.5, help="scrape.budget: high, as one front end renders the pages of all ranks here"
    )
    asked.add_argument("--nice", type=int, default=0, help="of the sidecar, on top of ours: 64 ranks that wake together take all cores")
    asked.add_argument("--seed", type=int, default=0)
    return asked.parse_args()


if __name__ == "__main__":
    main()
