"""What a diagnosis costs, and how that grows with the window, the ranks and the engines.

    python benchmarks/diagnosis.py

Prints CPU milliseconds (least of several rounds, after warm-up) of one diagnosis with a healthy past, on windows with load, waits and noise
in every signal, and the memory that the store holds per rank for five minutes at one page a second.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from collector.model import Engine, Facts, Reading, Source, Window
from collector.signals import CATALOGUE, Scope
from collector.store import Store
from diagnose.engine import diagnose

ROUNDS = 7


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


def fleet(engines: int, *, keep_past: bool) -> float:
    """CPU seconds to diagnose that many engines of 8 ranks once, windows of one minute at 1 s, each with its past. `keep_past`: the past
    was asked before, as a service that keeps it does."""
    kinds = [(window(8, 60, seed=k), window(8, 60, seed=k + 1)) for k in range(16)]
    pairs = [(fresh(now), past if keep_past else fresh(past)) for now, past in (kinds[k % len(kinds)] for k in range(engines))]
    if keep_past:
        for pair in kinds:
            diagnose(*pair)
    start = time.process_time()
    for pair in pairs:
        diagnose(*pair)
    return time.process_time() - start


def state(ranks: int = 8) -> float:
    """Bytes per rank that the store holds for five minutes at one page a second, every signal."""
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
    for engines in (8, 64, 512):
        for keep_past in (False, True):
            taken = fleet(engines, keep_past=keep_past)
            past = "kept" if keep_past else "new"
            print(f"{engines} engines of 8 ranks, 60 s, past {past}: {taken:.2f} s of one core, {engines * 8 / taken:,.0f} ranks a second")
    print(f"store: {state() / 1024:.1f} KiB per rank for 5 minutes at 1 s")


if __name__ == "__main__":
    main()
