"""What is said of card and link faults when the cards' own pages are read too: labelled runs in virtual time.

    python benchmarks/hardware.py [--seeds 10] [--first-seed 0] [--severities 0.6,1]

The runs of benchmarks/accuracy.py, with a dcgm-exporter page every five seconds, for the faults that an engine's own metrics cannot tell
apart, for faults of load and structure, which no card must be blamed for, and for healthy engines.
`costless`: the step time rose by less than 5 %, so that nobody need be told. All figures are of simulated
devices, whose sensors say what NVIDIA's documentation says that they would.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.accuracy import HIDDEN, LENGTH, ONSET, SETTLE, UNPLAYED, WINDOW, make, wilson
from workload import faults
from workload.schedule import Scheduled

TOLD = ("gpu_throttled", "gpu_degraded", "link_degraded")
COSTLESS = 1.05
LEVEL = (70.0, 80.0, 90.0)  # ends of windows of healthy runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--severities", default="0.6,1")
    asked = parser.parse_args()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    said: dict[str, Counter[str]] = defaultdict(Counter)
    right: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for fault_id in HIDDEN:
            fault = faults.load()[fault_id]
            for seed in seeds:
                for share in map(float, asked.severities.split(",")):
                    rank = None if fault.whole_group else seed % 8
                    schedule = [Scheduled(fault_id, rank, ONSET, LENGTH - ONSET, fault.severity * share)]
                    verdict, rise = make(folder, seed, schedule, LENGTH, cards=True).judged(ONSET + SETTLE + WINDOW)
                    costless = "costless " if rise < COSTLESS else ""
                    said[costless + fault_id][f"{verdict.klass.value}: {verdict.cause} {'right' if verdict.ranks == (rank,) else ''}"] += 1
                    if fault_id in TOLD and not costless:
                        right["of"] += 1
                        right["cause"] += verdict.cause == fault_id
                        right["rank"] += verdict.ranks == (rank,)
        for fault in faults.load().values():
            if fault.id in UNPLAYED or fault.klass == "single-point" or fault.id in HIDDEN:
                continue
            for seed in seeds:
                rank = None if fault.whole_group else seed % 8
                schedule = [Scheduled(fault.id, rank, ONSET, LENGTH - ONSET, fault.severity)]
                verdict, _ = make(folder, seed, schedule, LENGTH, cards=True).judged(ONSET + SETTLE + WINDOW)
                right["others"] += 1
                right["card blamed"] += bool({verdict.cause, *(v.cause for v in verdict.also)} & {*TOLD})
        for seed in seeds:
            run = make(folder, seed, [], LENGTH, cards=True)
            for end in LEVEL:
                verdict, _ = run.judged(end)
                said["healthy"][f"{verdict.klass.value}: {verdict.cause}"] += 1
    for what, counts in said.items():
        print(f"{what:<26}" + ", ".join(f"{answer} x{n}" for answer, n in counts.most_common()))
    print(f"load or structure with a card blamed beside it or for it: {wilson(right['card blamed'], right['others'])}")
    for what in ("cause", "rank"):
        print(f"{what} right, card and link faults that cost time: {wilson(right[what], right['of'])}")


if __name__ == "__main__":
    main()
