"""What a diagnosis costs, and how that grows with the window, the ranks and the engines.

    python benchmarks/diagnosis.py

Prints CPU milliseconds (least of several rounds, after warm-up) of one diagnosis with a healthy past, on windows with load, waits and noise
in every signal; the CPU seconds of many engines, the least of three rounds, on such windows and on those of simulated engines, of which
one in four has a fault; and the memory that the store holds per rank for five minutes.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from collector.capture import read_capture
from collector.intake import Intake
from collector.model import Engine, Facts, Reading, Source, Window
from collector.signals import CATALOGUE, Scope
from collector.store import Store
from diagnose.engine import diagnose
from workload import faults
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.traffic.presets import PRESETS
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

ROUNDS = 7
LENGTH, ONSET = 132.0, 66.0  # s of a simulated engine, and where its fault begins
FAULTS = {"chat": "host_cpu_starved", "agent": "context_length_skew", "rag": "expert_hotspot", "diurnal": "gpu_throttled"}


def window(ranks: int, seconds: int, seed: int = 0) -> Window:
    """A window in which every signal varies; values are of the size that an engine of eight ranks shows."""
    rng = np.random.default_rng(seed)
    level = {
        "steps_active": 25.0,
        "decode_steps": 25.0,
        "decode_time": 1.0,
        "running_requests": 9.0,
        "resident_tokens": 5e4,
        "sync_wait": 0.03,
    }
    values = {
        name: level.get(name, 1.0) * (1.0 + 0.2 * rng.random((ranks if signal.scope is Scope.RANK else 1, seconds)))
        for name, signal in CATALOGUE.items()
    }
    facts = Facts(accelerator="NVIDIA H20", kv_bytes_per_token=44_928.0)
    return Window(Engine("e", "sglang", facts), np.arange(seconds + 1, dtype=np.float64), tuple(range(ranks)), values, seconds)


def fresh(known: Window) -> Window:
    """The same window with nothing derived from it yet: what is computed once for a window must be paid for in every measurement."""
    return replace(known)


def cost(ranks: int, seconds: int) -> float:
    """CPU seconds of one diagnosis."""
    now, past = window(ranks, seconds), window(ranks, seconds, seed=1)
    diagnose(now, past)
    best = float("inf")
    for _ in range(ROUNDS):
        asked = fresh(now), fresh(past)
        start = time.process_time()
        diagnose(*asked)
        best = min(best, time.process_time() - start)
    return best


def varied() -> list[tuple[Window, Window]]:
    """Windows and pasts in which every signal of the catalogue varies, other engines' and cards' too: the most there can be to look at."""
    return [(window(8, 60, seed=k), window(8, 60, seed=k + 1)) for k in range(16)]


def simulated() -> list[tuple[Window, Window]]:
    """Windows of a minute, each with the minute before, of sixteen engines in virtual time: four kinds of traffic, three engines of each
    healthy and one with a fault; pages of their cards too."""
    return [_simulated(seed, traffic, FAULTS[traffic] if seed % 4 == 3 else "") for traffic in FAULTS for seed in range(4)]


def _simulated(seed: int, traffic: str, fault: str) -> tuple[Window, Window]:
    schedule = [Scheduled(fault, 3, ONSET, LENGTH - ONSET, faults.load()[fault].severity)] if fault else []
    config = ClusterConfig(ranks=8, seed=seed, traffic=PRESETS[traffic])
    intake = Intake(depth_s=LENGTH + 60.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        with Recording(path) as recording:
            simulate(config, schedule, LENGTH, recording, cards=recording.cards)
        for page in read_capture(path):
            intake.feed(page)
    (engine,) = intake.engines()
    start = intake.window(engine, LENGTH).start
    return intake.window(engine, 60.0, end=start + LENGTH - 2.0), intake.window(engine, 60.0, end=start + ONSET - 2.0)


def fleet(kinds: list[tuple[Window, Window]], engines: int, *, keep_past: bool) -> float:
    """CPU seconds to diagnose that many engines of 8 ranks once, by windows and pasts of `kinds`. `keep_past`: the past was asked before,
    as a service that keeps it does."""
    kinds = [(fresh(now), fresh(past)) for now, past in kinds]
    pairs = [(fresh(now), past if keep_past else fresh(past)) for now, past in (kinds[k % len(kinds)] for k in range(engines))]
    if keep_past:
        for pair in kinds:
            diagnose(*pair)
    start = time.process_time()
    for pair in pairs:
        diagnose(*pair)
    return time.process_time() - start


def sglang_state() -> float:
    """Bytes per rank that the store holds of a simulated SGLang engine after five minutes, loads every second and metrics every five."""
    intake = Intake(depth_s=300.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capture"
        with Recording(path) as recording:
            simulate(ClusterConfig(ranks=8), [], 330.0, recording)
        for page in read_capture(path):
            intake.feed(page)
    (engine,) = intake.engines()
    return intake.nbytes(engine) / 8


def state(ranks: int = 8) -> float:
    """Bytes per rank that the store holds for five minutes at one page a second, every signal of the catalogue, whoever shows it."""
    store = Store("e", "sglang", depth_s=300)
    values = {name: dict.fromkeys(range(ranks), 1.0) for name, signal in CATALOGUE.items() if signal.scope is Scope.RANK}
    for k in range(310):
        times = dict.fromkeys(range(ranks), 1000.0 + k)
        store.feed(Reading("e", "n", Source.SGLANG_METRICS, 1000.0 + k, times, values))
    return store.nbytes / ranks


def main() -> None:
    print("one engine, CPU ms per diagnosis")
    print(f"{'ranks':>7}" + "".join(f"{s:>9} s" for s in (10, 60, 300)))
    for ranks in (2, 8, 16, 32, 64, 512):
        print(f"{ranks:>7}" + "".join(f"{1e3 * cost(ranks, s):>9.2f}  " for s in (10, 60, 300)))
    for name, kinds in (("simulated", simulated()), ("every signal varying", varied())):
        for engines in (8, 64, 512):
            for keep_past in (False, True):
                taken = min(fleet(kinds, engines, keep_past=keep_past) for _ in range(3))
                past = "kept" if keep_past else "new"
                print(f"{engines} engines of 8 ranks, 60 s, {name}, past {past}: {taken:.2f} s, {engines * 8 / taken:,.0f} ranks a second")
    print(f"store, 5 minutes: {sglang_state() / 1024:.1f} KiB per rank of an SGLang engine as the service reads it")
    print(f"store, 5 minutes, every signal of the catalogue each second: {state() / 1024:.1f} KiB per rank")


if __name__ == "__main__":
    main()
