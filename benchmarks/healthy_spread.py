"""What chance does in a healthy group: the measurements behind the rules' thresholds.

Runs the workload without a fault (virtual device, 8 ranks), once per seed, cuts what the collector saw into windows of ten seconds, and
prints the median, 95 % and largest value of each quantity that a rule holds against a limit. Rules cite it as healthy_spread.py; their
figures are of six seeds, 36 windows.

    python benchmarks/healthy_spread.py [--seeds 5] [--seconds 60] [--ranks 8] [--engine unified|prefill|decode|speculating]
    python benchmarks/healthy_spread.py --virtual-time [--traffic agent] [--seeds 5] [--seconds 150]

In virtual time a window's past is the half minute from 28 s on; the figures of several traffics that rules cite are of eight seeds so.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

from collector import signals
from collector.capture import read_capture
from collector.intake import Intake
from collector.scrape import parse_target, scrape
from diagnose import acceptance, bursts, graphs, hand_over, lockstep, lone_prefill, prefill
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.leading import leads
from diagnose.prefill import prompt_tokens
from diagnose.rules import Limits, Threshold
from workload.cluster import Cluster
from workload.config import ClusterConfig, EngineFlags
from workload.scheduling.settings import Speculation, Split
from workload.traffic.model import Traffic
from workload.traffic.presets import preset
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

ENGINES = {
    "unified": EngineFlags(),
    "prefill": EngineFlags(split=Split(role="prefill")),
    "decode": EngineFlags(split=Split(role="decode")),
    "speculating": EngineFlags(speculation=Speculation()),
}

WINDOW_S = 10.0
WARM_S = 8.0
METRICS_EVERY = 2.0  # seconds, as `slowrank diagnose` reads a live engine


async def observe(url: str, seconds: float) -> list[Case]:
    """Consecutive windows of a running engine; the first is every other's past."""
    intake, stop = Intake(), asyncio.Event()
    task = asyncio.create_task(scrape([parse_target(url)], intake.feed, stop=stop))
    windows = []
    await asyncio.sleep(WARM_S)
    for _ in range(int(seconds // WINDOW_S)):
        await asyncio.sleep(WINDOW_S)
        windows.append(intake.window(parse_target(url).engine, WINDOW_S))
    stop.set()
    await task
    return [Case(w, windows[0] if w is not windows[0] else None) for w in windows]


def simulated(seed: int, ranks: int, seconds: float, traffic: Traffic) -> list[Case]:
    """Consecutive windows of an engine in virtual time, from 65 s on, with half a minute of its past."""
    intake = Intake(depth_s=seconds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        with Recording(path) as recording:
            simulate(ClusterConfig(ranks=ranks, seed=seed, traffic=traffic), [], seconds, recording, metrics_every=METRICS_EVERY)
        for page in read_capture(path):
            intake.feed(page)
    (engine,) = intake.engines()
    start = intake.window(engine, seconds).start
    past = intake.window(engine, 30.0, end=start + 58.0)
    ends = np.arange(75.0, seconds, WINDOW_S)
    return [Case(intake.window(engine, WINDOW_S, end=start + float(end)), past) for end in ends]


def quantities(case: Case) -> dict[str, float]:
    """What the rules hold against their limits, in their units."""
    out: dict[str, float] = {}
    waits, step = case.waits, case.step_time
    if waits is not None and step:
        out["host lost time, share of step time"] = case.host_lost.mid if case.host_lost else 0.0
        out["host waits (upper bound), share of step time"] = waits.lost / step
        out["gap of the least waiting ranks over the peers' spread"] = waits.gap / max(waits.spread, 1e-6)
        out["share of blocks that name the same rank"] = waits.agreement
    cpu = case.cpu_per_second
    out["largest scheduler CPU over the peers' median"] = float(np.nanmax(cpu / lockstep.peers_median(cpu)))
    if case.pair_load and case.pair_load.lost:
        out["levelling pairs, share of step time"] = case.pair_load.lost.mid
        out["busiest rank's pairs over the mean"] = case.pair_load.busiest / float(np.nanmean(case.pair_load.pairs))
    if case.prefill_load:
        busy = case.prefill_load.busy
        out["levelling prefill, share of step time"] = case.prefill_load.lost.mid
        out["most prefill time over the peers'"] = float(np.max(busy) / max(np.median(busy), 1e-9))
    hit, prompts = prompt_tokens(case.window)
    if np.isfinite(hit).any():
        out["lowest prefix hit ratio below the peers'"] = float(np.nanmax(lockstep.peers_median(hit) - hit))
        out["most prompt tokens over the peers'"] = float(np.nanmax(prompts / lockstep.peers_median(prompts)))
    out |= prefill_quantities(case)
    idle, steps = case.window.mean(signals.STEPS_IDLE), lockstep.steps_per_second(case.window)
    out["idle steps, share of all ranks'"] = float(np.nanmean(idle / steps))
    if (first := case.first_tokens) is not None:
        out["first token's wait that no rank accounts for, s"] = first.outside
    eager, touched = graphs.eager_share(case.window), graphs.prefill_touched(case.window)
    if eager is not None and touched is not None:
        out["share of decode passes that are eager"] = eager
        out["eager share that prefill does not explain"] = eager - touched
        before = graphs.eager_share(case.baseline) if case.baseline else None
        if before is not None:
            out["rise of the eager share over the past"] = eager - before
    out["retracted requests per second"] = float(np.nanmax(case.window.mean(signals.RETRACTED)))
    running = case.window.mean(signals.RUNNING)
    if np.nansum(running) > 0:  # a prefill server decodes nothing
        out["most running requests over the peers'"] = float(np.nanmax(running / lockstep.peers_median(running)))
    out |= hand_over_of(case) | acceptance_of(case)
    load = case.window.mean(signals.EXPERT_LOAD)
    if np.isfinite(load).any():
        out["most expert load over the peers'"] = float(np.nanmax(load / lockstep.peers_median(load)))
    if case.balancedness is not None:
        out["1 - expert balancedness"] = 1.0 - case.balancedness
    if case.excess is not None:
        out["unexplained rise over the past, share of step time"] = case.excess.share.mid
        out["tokens per step over the past"] = case.excess.tokens_ratio or float("nan")
    if case.balancedness is not None and case.balancedness_before is not None:
        out["fall of balancedness from the past"] = case.balancedness_before - case.balancedness
    out["snapshot age, s"] = float(np.nanmax(case.window.get(signals.SNAPSHOT_AGE)))
    return out


def prefill_quantities(case: Case) -> dict[str, float]:
    """What the rules on prefill hold against their limits."""
    out: dict[str, float] = {}
    swings = [bursts.burst(case.window, row) for row in range(len(case.window.ranks))]
    out["swing of a rank's requests, x what chance moves"] = max((s.swing / s.chance for s in swings if s), default=float("nan"))
    lone = lone_prefill.lone_prefill(case, Limits(prefill.THRESHOLDS | {"lead": Threshold(1.0, "", "")}))
    if isinstance(lone, lone_prefill.LonePrefill):
        out["most prefill time over the peers', where it costs time"] = lone.busy / max(lone.usual, 1e-9)
        out["share of blocks in which that rank leads"] = lone.persistence
        if lone.usual_uneven is not None:
            out["uneven prefill over the past's worst"] = lone.uneven / max(lone.usual_uneven, 1e-9)
    if case.group_drag is not None:
        out["drag by the window's own plain step, share of step time"] = case.group_drag.share() or float("nan")
    if (grown := case.prefill_growth) is not None:
        out["steps with prefill more than in the past, share"] = grown.touched
        out["prompt tokens over the past's most"] = grown.tokens
        out["cost of more prefill than in the past, share of step time"] = grown.share.mid
    return out


def hand_over_of(case: Case) -> dict[str, float]:
    """What `pd_queue_skew` holds against its limits, on a split engine."""
    out: dict[str, float] = {}
    for name in hand_over.QUEUES.get(case.window.engine.facts.role or "", ()):
        held = case.window.mean(name)
        more = held - lockstep.peers_median(held)
        row = int(np.nanargmax(more))
        out[f"most of {name} above the peers', requests"] = float(more[row])
        out[f"share of intervals in which that rank leads {name}"] = leads(case.window.get(name), row)
    speed = case.window.mean(signals.TRANSFER_SPEED)
    if (speed > 0).any():
        out["lowest KV transfer speed over the peers'"] = float(np.nanmin(speed / lockstep.peers_median(speed)))
    return out


def acceptance_of(case: Case) -> dict[str, float]:
    """What `speculation_skew` holds against its limits, on a speculating engine."""
    short = acceptance.shortfall(case.window)
    if short is None:
        return {}
    running = case.window.mean(signals.RUNNING)
    lost = float(running[short.row]) * (short.peers - short.own)
    return {
        "1 - least tokens per step over the peers'": 1.0 - short.ratio,
        "share of intervals in which that rank is lowest": short.steady,
        "tokens that the lowest rank costs, share": lost / (float(np.nansum(running * case.window.mean(signals.ACCEPT_LENGTH))) + lost),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="unified")
    parser.add_argument("--virtual-time", action="store_true", help="simulate instead of running; for traffic other than chat")
    parser.add_argument("--traffic", default="chat", help="a preset of workload.traffic.presets")
    asked = parser.parse_args()
    if asked.traffic != "chat" and not asked.virtual_time:
        parser.error("--traffic needs --virtual-time")
    seen: dict[str, list[float]] = defaultdict(list)
    verdicts: dict[str, int] = defaultdict(int)
    for seed in range(asked.seeds):
        if asked.virtual_time:
            cases = simulated(seed, asked.ranks, asked.seconds, preset(asked.traffic))
        else:
            with Cluster(ClusterConfig(ranks=asked.ranks, seed=seed, engine=ENGINES[asked.engine])) as cluster:
                cases = asyncio.run(observe(cluster.url, asked.seconds))
        for case in cases:
            verdict = diagnose(case.window, case.baseline).verdict
            verdicts[f"{verdict.klass.value} {verdict.cause or ''}".strip()] += 1
            for name, value in quantities(case).items():
                seen[name].append(value)
    windows = sum(verdicts.values())
    print(f"{windows} windows of {WINDOW_S:.0f} s, {asked.ranks} ranks, virtual device (simulated durations), no fault, {asked.traffic}")
    print(f"{'quantity':<58}{'median':>9}{'95 %':>9}{'largest':>9}")
    for name, values in seen.items():
        print(f"{name:<58}{np.nanmedian(values):>9.3f}{np.nanquantile(values, 0.95):>9.3f}{np.nanmax(values):>9.3f}")
    print("verdicts: " + ", ".join(f"{name} {count}" for name, count in sorted(verdicts.items())))


if __name__ == "__main__":
    main()
