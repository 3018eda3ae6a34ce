"""Several workloads at once, each healthy first and then with a fault, read as a live engine is: most of their time is waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from collector.intake import Intake
from collector.model import Window
from collector.scrape import parse_target, scrape
from workload.cluster import Cluster
from workload.config import ClusterConfig


@dataclass(frozen=True)
class Play:
    """A cluster, `fault` on `rank` after `healthy` seconds, for `faulty` seconds. The windows leave out the first `settling` of each."""

    config: ClusterConfig
    fault: str
    rank: int
    severity: float | None = None
    healthy: float = 14.0
    faulty: float = 16.0
    settling: float = 6.0


def play(plays: Sequence[Play]) -> list[tuple[Window, Window]]:
    """Each play's window before its fault and under it, in the order given."""

    async def all_at_once(clusters: Sequence[Cluster]) -> list[tuple[Window, Window]]:
        return await asyncio.gather(*(_one(cluster, play) for cluster, play in zip(clusters, plays, strict=True)))

    with ExitStack() as stack:
        return asyncio.run(all_at_once([stack.enter_context(Cluster(play.config)) for play in plays]))


async def _one(cluster: Cluster, play: Play) -> tuple[Window, Window]:
    target, intake, stop = parse_target(cluster.url), Intake(), asyncio.Event()
    reading = asyncio.create_task(scrape([target], intake.feed, stop=stop))
    await asyncio.sleep(play.healthy)
    before = intake.window(target.engine, play.healthy - play.settling)
    cluster.inject(play.fault, rank=play.rank, severity=play.severity)
    await asyncio.sleep(play.faulty)
    after = intake.window(target.engine, play.faulty - play.settling)
    stop.set()
    await reading
    return before, after
