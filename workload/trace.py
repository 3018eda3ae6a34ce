"""A run of a scenario as curves: step time, wait, attention pairs and requests of every rank, a point a second.

From virtual time where it plays the scenario, else from a real cluster in its own time, read over HTTP as any scraper would.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from workload.cluster import Cluster
from workload.run import play
from workload.scenario import Scenario

_WAITS = ('scheduler_stage_seconds_total{category="recv_requests",forward_overlap="none"}', "dp_attention_sync_wait_seconds_sum")
_PAIRS = 'dp_attention_pairs_total{kind="scheduled"}'
_STEPS = ('dp_attention_steps_total{rank_state="active"}', 'dp_attention_steps_total{rank_state="idle"}')
_SERIES = (*_WAITS, _PAIRS, *_STEPS)


@dataclass(frozen=True, slots=True)
class Point:
    """Means between two scrapes, the second one `at` seconds after the start.

    `step` in seconds of wall time per step of the group, `waits` in seconds and `pairs` in KV tokens per step, one value a rank; None
    without any step. `requests` are those that each rank said, at the second scrape, to be running or waiting.
    """

    at: float
    step: float | None
    waits: tuple[float, ...] | None
    pairs: tuple[float, ...] | None
    requests: tuple[float, ...]


Counters = dict[str, list[float]]
"""Per series, a value for each rank; `requests` is one more."""


def simulated(scenario: Scenario) -> list[Point]:
    """In virtual time. Raises ValueError for what it does not play."""
    from workload.virtual_time.simulate import simulate
    from workload.virtual_time.table import Table

    table = Table()
    # unlike an engine's, the pages of virtual time cost nothing: both kinds come every second
    simulate(scenario.config, scenario.schedule, scenario.duration, table, metrics_every=1.0)
    counters = {name: table.counter(name).tolist() for name in _SERIES}
    counters["requests"] = (table.load("running") + table.load("waiting")).tolist()
    times = [float(at) for at in table.metrics_times]
    return points([(at, {name: values[min(i, len(values) - 1)] for name, values in counters.items()}) for i, at in enumerate(times)])


def live(scenario: Scenario, say: Callable[[str], None] = lambda _: None) -> list[Point]:
    """On a real cluster, for as long as the scenario lasts. Raises ClusterError when a process of it dies."""
    scrapes: list[tuple[float, Counters]] = []
    over = threading.Event()
    with Cluster(scenario.config) as cluster:
        start = time.monotonic()

        def scrape() -> None:
            while not over.wait(max(0.0, start + len(scrapes) + 1 - time.monotonic())):
                counters = _read(_page(cluster.url + "/metrics").decode(), scenario.config.ranks)
                loads = msgspec.json.decode(_page(cluster.url + "/v1/loads"))["loads"]
                counters["requests"] = [load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads]
                scrapes.append((time.monotonic() - start, counters))

        thread = threading.Thread(target=scrape, name="trace", daemon=True)
        thread.start()
        try:
            play(cluster, scenario.schedule, threading.Event(), say, scenario.duration)
        finally:
            over.set()
            thread.join()
    return points(scrapes)


def points(scrapes: list[tuple[float, Counters]]) -> list[Point]:
    """What happened between each two scrapes that follow each other."""
    found = []
    for (_, before), (at, after), (since, _) in zip(scrapes, scrapes[1:], scrapes, strict=False):
        grown = {name: [b - a for a, b in zip(before[name], after[name], strict=True)] for name in _SERIES}
        steps = sum(grown[name][0] for name in _STEPS)
        if steps <= 0:
            found.append(Point(at, None, None, None, tuple(after["requests"])))
            continue
        waits = tuple(sum(of) / steps for of in zip(*(grown[name] for name in _WAITS), strict=True))
        pairs = tuple(pairs / steps for pairs in grown[_PAIRS])
        found.append(Point(at, (at - since) / steps, waits, pairs, tuple(after["requests"])))
    return found


def _page(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as page:  # noqa: S310  # our own loopback port
        body: bytes = page.read()
    return body


_SAMPLE = re.compile(r"^sglang:(\w+)\{([^}]*)\} (\S+)$")


def _read(page: str, ranks: int) -> Counters:
    found: Counters = {name: [0.0] * ranks for name in _SERIES}
    for line in page.splitlines():
        match = _SAMPLE.match(line)
        if match is None or (rank := re.search(r'dp_rank="(\d+)"', match[2])) is None:
            continue
        for name in _SERIES:
            family, _, labels = name.partition("{")
            if family == match[1] and all(label in match[2] for label in re.findall(r'\w+="\w+"', labels)):
                found[name][int(rank[1])] += float(match[3])
    return found
