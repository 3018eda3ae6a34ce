"""How often a diagnosis is right: labelled runs in virtual time, judged by a scorer that alone opens the label files.

    python benchmarks/accuracy.py [--seeds 5] [--first-seed 100] [--severities 0.6,1]

For every fault that virtual time plays, every severity and every seed: a capture of a minute of a healthy engine and 35 s with the fault,
written by the simulator; the pages are replayed through the collector, and the ten seconds from five seconds after the onset are diagnosed
with the healthy minute as past. A host fault that overlap hides (the step time rose by less than 5 %) is counted apart: it costs nothing,
and blaming it would be a false alarm. Healthy runs, plain and with harmless events, are cut into windows of ten seconds and every verdict
on them is counted.

Seeds from 100 up were never used to choose a threshold; thresholds were chosen on real-time runs of seeds 0 to 21. All figures are of
simulated devices. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collector.capture import read_capture
from collector.intake import Intake
from diagnose.engine import diagnose
from diagnose.lockstep import cadence
from diagnose.model import Class, Verdict
from workload import faults, harmless, labels
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

ONSET = 60.0
SETTLE = 5.0
WINDOW = 10.0
LENGTH = 95.0
METRICS_EVERY = 2.0  # as `slowrank diagnose` reads a live engine
UNPLAYED = ("pd_queue_skew", "speculation_skew")  # virtual time refuses them
HIDDEN = ("gpu_throttled", "gpu_degraded", "link_degraded", "dispatch_skew", "whole_group_slow")
"""Causes that an engine's own metrics cannot tell apart: the right answer without card evidence is insufficient evidence."""
OVERLAPPED = ("host_cpu_starved", "slow_rank", "slow_process", "slow_node")
EXPECTED = {"single-point": Class.SINGLE_POINT, "load": Class.LOAD, "structural": Class.STRUCTURAL}


@dataclass(frozen=True)
class Run:
    """A capture, where its labels are, and how to take windows of it."""

    intake: Intake
    labels: Path
    start: float

    def judged(self, at: float) -> tuple[Verdict, float]:
        """The verdict on the window that ends `at` seconds after the start, with the healthy half minute before the onset as past, and how
        many times the past's step time its own is."""
        engine = self.intake.engines()[0]
        window = self.intake.window(engine, WINDOW, end=self.start + at)
        baseline = self.intake.window(engine, 30.0, end=self.start + ONSET - 2.0)
        now, before = cadence(window), cadence(baseline)
        return diagnose(window, baseline).verdict, now / before if now and before else math.inf


def make(folder: Path, seed: int, schedule: list[Scheduled], length: float, *, cards: bool = False) -> Run:
    """Simulate, and read the capture back as a user would. `cards`: with the pages of the cards' exporter."""
    path, truth = folder / "capture", folder / "labels"
    path.unlink(missing_ok=True)
    truth.unlink(missing_ok=True)
    with Recording(path) as recording:
        simulate(
            ClusterConfig(seed=seed, labels=truth),
            schedule,
            length,
            recording,
            metrics_every=METRICS_EVERY,
            cards=recording.cards if cards else None,
        )
    intake = Intake(depth_s=length)
    for page in read_capture(path):
        intake.feed(page)
    return Run(intake, truth, intake.window(intake.engines()[0], length).start)


def wilson(right: int, of: int) -> str:
    """A share with its 95 % interval."""
    if not of:
        return "-"
    z, p = 1.96, right / of
    centre, half = (p + z * z / (2 * of)), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return f"{p:.3f} [{max(0.0, (centre - half) / (1 + z * z / of)):.3f}, {min(1.0, (centre + half) / (1 + z * z / of)):.3f}] of {of}"


def faulty(folder: Path, seeds: range, severities: list[float]) -> Iterator[tuple[labels.Label, Verdict, float]]:
    """Each label with the verdict on the window in which it acted, and the rise of the step time."""
    for fault in faults.load().values():
        if fault.id in UNPLAYED:
            continue
        for seed in seeds:
            for share in severities:
                rank = None if fault.whole_group else seed % 8
                severity = fault.severity * share
                run = make(folder, seed, [Scheduled(fault.id, rank, ONSET, LENGTH - ONSET, severity)], LENGTH)
                (label,) = labels.read(run.labels)
                yield label, *run.judged(ONSET + SETTLE + WINDOW)


def healthy(folder: Path, seeds: range) -> Iterator[tuple[str, Verdict]]:
    """Verdicts on consecutive windows of runs in which nothing is wrong, plain and with each harmless event."""
    for seed in seeds:
        for event in (None, *harmless.load().values()):
            rank = None if event is None or event.whole_group else seed % 8
            schedule = [] if event is None else [Scheduled(event.id, rank, ONSET, 60.0, event.severity)]
            run = make(folder, seed, schedule, 180.0)
            for end in range(70, 180, 10):
                yield event.id if event else "plain", run.judged(float(end))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--severities", default="0.6,1")
    asked = parser.parse_args()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    severities = [float(s) for s in asked.severities.split(",")]
    said: dict[str, Counter[str]] = defaultdict(Counter)
    score: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, verdict, rise in faulty(folder, seeds, severities):
            said[label.fault][f"{verdict.klass.value}: {verdict.cause}"] += 1
            judge(label, verdict, rise, score)
        calm = Counter((event, verdict.klass in EXPECTED.values()) for event, verdict in healthy(folder, seeds))
    print(
        f"seeds {seeds.start} to {seeds.stop - 1}, severities {severities}, virtual device, windows of {WINDOW:.0f} s with a healthy past\n"
    )
    print("what was said, by fault")
    for fault, counts in sorted(said.items()):
        print(f"  {fault:<22}" + ", ".join(f"{what} x{n}" for what, n in counts.most_common()))
    print("\nfaults that engine metrics can tell")
    for what in ("class", "cause", "ranks"):
        print(f"  {what} right           {wilson(score[what], score['tellable'])}")
    print(f"  abstained            {wilson(score['abstained'], score['tellable'])}")
    print(f"  wrong class blamed   {wilson(score['wrong'], score['tellable'])}")
    print(f"  right, of those that blame a class   {wilson(score['class'], score['class'] + score['wrong'])}")
    print("faults that only card evidence can tell")
    print(f"  a class blamed       {wilson(score['hidden wrong'], score['hidden'])}")
    print("host faults that overlap hides")
    print(f"  a class blamed       {wilson(score['costless blamed'], score['costless'])}")
    print("load or structure blamed on a single point")
    print(f"  {wilson(score['card blamed'], score['not single'])}")
    print("healthy windows with a class blamed, by event")
    for event in dict.fromkeys(event for event, _ in calm):
        print(f"  {event:<22}{wilson(calm[event, True], calm[event, True] + calm[event, False])}")


def judge(label: labels.Label, verdict: Verdict, rise: float, score: Counter[str]) -> None:
    """Count one labelled window."""
    fault = faults.load()[label.fault]
    blamed = verdict.klass in EXPECTED.values()
    if label.fault in HIDDEN:
        score["hidden"] += 1
        score["hidden wrong"] += blamed
        return
    if fault.klass not in EXPECTED:
        return
    if label.fault in OVERLAPPED and rise < 1.05:
        score["costless"] += 1
        score["costless blamed"] += blamed
        return
    score["tellable"] += 1
    score["class"] += verdict.klass is EXPECTED[fault.klass]
    score["cause"] += verdict.cause == label.fault
    score["ranks"] += bool(verdict.ranks) and set(verdict.ranks) == set(label.ranks or (label.rank,))
    score["wrong"] += blamed and verdict.klass is not EXPECTED[fault.klass]
    score["abstained"] += not blamed
    if fault.klass != "single-point":
        score["not single"] += 1
        score["card blamed"] += verdict.klass is Class.SINGLE_POINT


if __name__ == "__main__":
    main()
