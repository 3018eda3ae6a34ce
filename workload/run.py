"""Runs a cluster with a schedule of faults until its time is over or somebody stops it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.schedule import Moment, Scheduled, check, moments

_CHECK_SECONDS = 0.5


def run(
    config: ClusterConfig,
    schedule: Sequence[Scheduled],
    stop: threading.Event,
    *,
    say: Callable[[str], None],
    duration: float = math.inf,
) -> None:
    """Blocks for `duration` seconds, until `stop` is set, or until Ctrl-C. `say` hears the URL and each fault's begin and end.

    Raises ValueError before anything starts for a fault that this cluster cannot have, ClusterError when a process of it dies.
    """
    check(schedule, config)
    with Cluster(config) as cluster:
        say(cluster.url)
        try:
            play(cluster, schedule, stop, say, duration)
        except KeyboardInterrupt:
            say("stopped")


def play(cluster: Cluster, schedule: Sequence[Scheduled], stop: threading.Event, say: Callable[[str], None], duration: float) -> None:
    """Injects and ends the faults of a checked schedule on a running cluster, until `duration` seconds are over or `stop` is set."""
    start = time.monotonic()
    events = moments(schedule)
    while (now := time.monotonic() - start) < duration and not stop.is_set():
        cluster.check()
        while events and events[0].at <= now:
            _do(cluster, events.pop(0), say, now)
        until = min(duration, events[0].at if events else math.inf, now + _CHECK_SECONDS)
        stop.wait(max(0.0, until - (time.monotonic() - start)))


def _do(cluster: Cluster, moment: Moment, say: Callable[[str], None], now: float) -> None:
    what = moment.what
    where = "" if what.rank is None else f" on rank {what.rank}"
    match moment.does:
        case "begin":
            cluster.inject(what.fault, rank=what.rank, severity=moment.severity)
            say(f"{now:.0f} s: {what.fault} begins{where}")
        case "raise":
            cluster.worsen(what.fault, rank=what.rank, severity=moment.severity)
            say(f"{now:.0f} s: {what.fault} rises to {moment.severity:.2g}{where}")
        case "end":
            cluster.clear(what.fault, rank=what.rank)
            say(f"{now:.0f} s: {what.fault} ends{where}")
