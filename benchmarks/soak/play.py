"""Faults come and go on a running cluster, while its sidecar is looked at."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.soak.sidecar import Sidecar, Told
from workload.cluster import Cluster

PLAN = (
    "host_cpu_starved",
    "context_length_skew",
    "gpu_throttled",
    "expert_hotspot",
    "link_degraded",
    "request_count_skew",
    "gpu_degraded",
    "host_cpu_starved",
    "long_prefill",
    "gpu_throttled",
    "slow_rank",
    "whole_group_slow",
)
"""Of every class. Those that come twice are single points, which are told apart by their ranks; of load and layout each comes once, as a
cause that moves to another rank is the same incident."""

EVERY = 5.0
"""s between two looks at the process."""


@dataclass(frozen=True, slots=True)
class Acted:
    """A fault that was there. Unix seconds."""

    fault: str
    rank: int
    start: float
    end: float


def play(cluster: Cluster, sidecar: Sidecar, told: list[Told], acted: list[Acted], args: argparse.Namespace) -> None:
    """All of it, in real time; what happens is printed as it does. `acted` is filled as faults end."""
    begun = time.monotonic()
    last = begun + 60 * args.minutes
    faults, ranks = itertools.cycle(args.faults.split(",")), _spread(args.ranks)
    change, acting = begun + 60 * args.quiet, None
    heard, seen = 0, dict[str, str]()
    while (now := time.monotonic()) < last:
        cluster.check()
        if now >= change and acting is not None:
            _end(cluster, acting, acted)
            acting, change = None, now + args.off
        elif now >= change and now + args.on <= last - 60 * args.tail:
            acting = (next(faults), next(ranks), time.time())
            cluster.inject(acting[0], rank=acting[1])
            _say(f"fault {acting[0]} on {acting[1]}")
            change = now + args.on
        sidecar.look([cluster.pid(name) for name in (*(f"rank{r}" for r in range(args.ranks)), "frontend", "fabric")])
        for one in told[heard:]:
            _say(f"    told: {one.status} {one.alert} {one.incident}")
        heard = len(told)
        for incident in reversed(sidecar.incidents()):
            state = f"{incident['state']} {incident['cause']} on {incident['ranks']}, {incident['returns']} returns"
            if seen.get(incident["id"]) != state:
                _say(f"    incident {incident['id'][:8]}: {state}")
            seen[incident["id"]] = state
        time.sleep(max(0.0, EVERY - (time.monotonic() - now)))
    if acting is not None:
        _end(cluster, acting, acted)


def _end(cluster: Cluster, acting: tuple[str, int, float], acted: list[Acted]) -> None:
    cluster.clear()
    acted.append(Acted(*acting, time.time()))
    _say(f"fault {acting[0]} ends")


def _spread(ranks: int) -> Iterator[int]:
    """Ranks far from each other, none twice in a round: by the golden section of their number, made prime to it."""
    step = next(s for s in itertools.count(max(1, round(ranks * 0.382))) if all(s * k % ranks for k in range(1, ranks)))
    return itertools.cycle((1 + step * k) % ranks for k in range(ranks))


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
