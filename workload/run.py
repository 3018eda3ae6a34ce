"""Runs a cluster with a schedule of faults until its time is over or somebody stops it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.schedule import Scheduled

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

    Raises ClusterError when a process of the cluster dies.
    """
    with Cluster(config) as cluster:
        say(cluster.url)
        try:
            _play(cluster, schedule, stop, say, duration)
        except KeyboardInterrupt:
            say("stopped")


def _play(cluster: Cluster, schedule: Sequence[Scheduled], stop: threading.Event, say: Callable[[str], None], duration: float) -> None:
    start = time.monotonic()
    events = sorted(
        [(s.onset, True, s) for s in schedule] + [(s.onset + s.duration, False, s) for s in schedule if s.duration < math.inf],
        key=lambda event: event[:2],
    )
    while (now := time.monotonic() - start) < duration and not stop.is_set():
        cluster.check()
        while events and events[0][0] <= now:
            _, begins, what = events.pop(0)
            where = "" if what.rank is None else f" on rank {what.rank}"
            if begins:
                cluster.inject(what.fault, rank=what.rank, severity=what.severity)
                say(f"{now:.0f} s: {what.fault} begins{where}")
            else:
                cluster.clear(what.fault, rank=what.rank)
                say(f"{now:.0f} s: {what.fault} ends{where}")
        until = min(duration, events[0][0] if events else math.inf, now + _CHECK_SECONDS)
        stop.wait(max(0.0, until - (time.monotonic() - start)))
