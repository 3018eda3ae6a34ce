"""How often a slow card is named from the cadence alone, and how often a sound one is blamed: labelled runs in virtual time.

    python -m benchmarks.slow_card [--seeds 4] [--first-seed 100] [--windows 10,60,300]

For each traffic, fault and seed: a healthy minute, then five with the fault on rank (seed + 3) mod 8, pages every second and two seconds;
windows of each length are taken of the five minutes and diagnosed with the healthy half minute as past. No page of a card's sensors is
read. What is asked of each verdict: does `slow_rank` blame a card (finding with the evidence of pairs), and is it the right one.

Thresholds were chosen on seeds 0 to 21; from 100 up none was ever used for it. All figures are of simulated devices; Wilson, 95 %.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.accuracy.stats import wilson
from collector import signals
from collector.capture import read_capture
from collector.intake import Intake
from collector.model import Window
from diagnose.engine import diagnose
from diagnose.model import Verdict
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.traffic.model import ClosedLoop, Lengths, Traffic
from workload.traffic.presets import CHAT
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

ONSET, LENGTH = 60.0, 365.0
MIXED = Traffic(
    arrivals=ClosedLoop(),
    prompt=Lengths(median=8000, sigma=1.0, low=512, high=65_536),
    fresh=Lengths(median=100, sigma=0.7, low=8, high=400),
    output=Lengths(median=400, sigma=0.6, low=16, high=1500),
)
"""Conversations of very different lengths, all cached: the rank with most pairs changes every few seconds."""

TRAFFIC = {"chat": CHAT, "mixed lengths": MIXED}
CARDS = [("gpu_degraded", 1.0), ("gpu_degraded", 0.5), ("gpu_throttled", 1.0), ("gpu_throttled", 0.7)]
SOUND = [
    None,
    ("context_length_skew", 1.0),
    ("context_length_skew", 0.3),
    ("request_count_skew", 0.6),
    ("expert_hotspot", 1.0),
    ("slow_rank", 1.0),
    ("whole_group_slow", 1.0),
    ("link_degraded", 1.0),
]


def record(fault: tuple[str, float] | None, traffic: Traffic, seed: int) -> tuple[Intake, float]:
    """A run as the collector reads it, and its start."""
    rank = None if fault and fault[0] == "whole_group_slow" else (seed + 3) % 8
    schedule = [] if fault is None else [Scheduled(fault[0], rank, ONSET, LENGTH - ONSET, fault[1])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        with Recording(path) as recording:
            simulate(ClusterConfig(seed=seed, traffic=traffic), schedule, LENGTH, recording, metrics_every=2.0)
        intake = Intake(depth_s=LENGTH)
        for page in read_capture(path):
            intake.feed(page)
    return intake, intake.window(intake.engines()[0], LENGTH).start


def windows(intake: Intake, start: float, seconds: int) -> Iterator[tuple[Window, Window]]:
    """Windows from five seconds after the onset, one beginning every half minute at most, each with the healthy past."""
    engine = intake.engines()[0]
    past = intake.window(engine, 30.0, end=start + ONSET - 2.0)
    end = ONSET + 5.0 + min(seconds, 298)
    while end <= LENGTH - 1.0:
        yield intake.window(engine, float(seconds), end=start + end), past
        end += max(seconds, 30)


def card(verdict: Verdict) -> tuple[int, ...] | None:
    """The ranks whose card a verdict blames; None when it blames no card."""
    for found in (verdict, *verdict.also):
        if found.cause == "slow_rank" and any(item.signal == signals.RESIDENT_TOKENS for item in found.evidence):
            return found.ranks
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--windows", default="10,60,300")
    asked = parser.parse_args()
    seeds, lengths = range(asked.first_seed, asked.first_seed + asked.seeds), [int(s) for s in asked.windows.split(",")]
    blamed: dict[int, Counter[str]] = {seconds: Counter() for seconds in lengths}
    print(
        f"seeds {seeds.start} to {seeds.stop - 1}, 8 ranks, virtual device\n\nthe right card named, a wrong one blamed, of how many windows"
    )
    for name, traffic in TRAFFIC.items():
        for fault in (*CARDS, *SOUND):
            counts: dict[int, Counter[str]] = {seconds: Counter() for seconds in lengths}
            for seed in seeds:
                intake, start = record(fault, traffic, seed)
                for seconds in lengths:
                    for window, past in windows(intake, start, seconds):
                        ranks = card(diagnose(window, past).verdict)
                        right = fault in CARDS and ranks == ((seed + 3) % 8,)
                        counts[seconds]["all"] += 1
                        counts[seconds]["right"] += right
                        counts[seconds]["wrong"] += ranks is not None and not right
            what = "healthy" if fault is None else f"{fault[0]} {fault[1]:g}"
            said = ", ".join(f"{s} s: {c['right']} + {c['wrong']} of {c['all']}" for s, c in counts.items())
            print(f"  {name:<14}{what:<26}{said}", flush=True)
            if fault not in CARDS:
                for seconds in lengths:
                    blamed[seconds].update(counts[seconds])
    print("\na card blamed though none is slow")
    for seconds, count in blamed.items():
        print(f"  {seconds:>4} s windows  {wilson(count['wrong'], count['all'])}")


if __name__ == "__main__":
    main()
