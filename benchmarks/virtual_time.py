"""How many rank-days a core simulates: `python benchmarks/virtual_time.py [SECONDS] [--ranks N] [--card CARD] [--slowdown N]`.

Needs no engine and no network. A rank-day of N ranks is 24 h / N of engine time. CHAT traffic, healthy, a scrape of the loads each
second and of the metrics every five; CPU time of this process, imports left out; the least of three rounds counts, as other work on the
machine only adds. What it costs goes by the steps: as it is called here a step takes 30 ms, a B200's 27 and a model a tenth larger.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import platform
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from workload.config import ClusterConfig
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import LOADS_EVERY, METRICS_EVERY, simulate
from workload.virtual_time.table import Table

_DAY = 86_400.0
_ROUNDS = 3


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("seconds", nargs="?", type=float, default=1800.0, help="of engine time in each round")
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--card", default="B200", help="that virtual ranks have; see workload/device/catalogue.py")
    arguments.add_argument("--slowdown", type=float, default=1.1, help="times as long a step of it takes")
    given = arguments.parse_args()
    config = ClusterConfig(ranks=given.ranks, seed=1, card=given.card, slowdown=given.slowdown)
    _run(config, 10.0, Table(), pages=True)  # imports and caches
    print(f"Python {platform.python_version()} on {platform.machine()}, {given.ranks} ranks, {given.seconds:g} s of engine time per round")
    with tempfile.TemporaryDirectory() as folder:
        bare = _least(lambda: _run(config, given.seconds, Table(), pages=False))
        table = _least(lambda: _run(config, given.seconds, Table(), pages=True))
        file = _least(lambda: _record(config, given.seconds, Path(folder)))
    steps = _steps(config, min(given.seconds, 600.0))
    print(f"a step of the engine takes {1e3 / steps:.1f} ms ({given.card}, slowdown {given.slowdown:g})")
    for what, cpu in (("no scrapes", bare), ("scrapes to a table", table), ("scrapes to a capture file", file)):
        day = cpu / given.seconds * _DAY / given.ranks
        per_step = cpu / given.seconds / steps * 1e6
        at = f"at {1e3 / steps:.1f} ms a step"
        print(f"{what:<26}{day:6.1f} core-seconds a rank-day {at}  {1 / day:.3f} rank-days a core-second  {per_step:.0f} us a step")
    _profile(config, given.seconds)


def _run(config: ClusterConfig, seconds: float, sink: Table | Recording, *, pages: bool) -> None:
    every = (LOADS_EVERY, METRICS_EVERY) if pages else (math.inf, math.inf)
    simulate(config, [], seconds, sink, loads_every=every[0], metrics_every=every[1])


def _record(config: ClusterConfig, seconds: float, folder: Path) -> None:
    path = folder / "capture"
    path.unlink(missing_ok=True)
    with Recording(path) as recording:
        _run(config, seconds, recording, pages=True)


def _least(run: Callable[[], None]) -> float:
    """CPU seconds of the quickest round."""
    times = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def _steps(config: ClusterConfig, seconds: float) -> float:
    """Steps per second of engine time."""
    table = Table()
    simulate(config, [], seconds, table, loads_every=math.inf)
    steps = table.counter("dp_attention_sync_wait_seconds_count")[:, 0]
    return float((steps[-1] - steps[0]) / (table.metrics_times[-1] - table.metrics_times[0]))


def _profile(config: ClusterConfig, seconds: float) -> None:
    """Where the time goes, by file; the profiler makes calls look dearer than they are."""
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        profile.runcall(_record, config, seconds / 3, Path(folder))
    spent: dict[str, float] = {}
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        part = "builtins" if file == "~" else Path(file).name
        spent[part] = spent.get(part, 0.0) + own
    whole = sum(spent.values())
    print("own time by file: " + ", ".join(f"{part} {own / whole:.0%}" for part, own in sorted(spent.items(), key=lambda x: -x[1])[:12]))


if __name__ == "__main__":
    main()
