"""A split engine and a speculating one, broken for real: the rule of the fault's name speaks, and names the fault's rank."""

from __future__ import annotations

import asyncio

import pytest

from collector.intake import Intake
from collector.scrape import parse_target, scrape
from diagnose.engine import diagnose
from diagnose.model import Class, Verdict
from workload.cluster import Cluster
from workload.config import ClusterConfig, EngineFlags
from workload.scheduling.settings import Speculation, Split

pytestmark = pytest.mark.cluster

RANK = 2


async def _observe(cluster: Cluster, fault: str) -> tuple[Verdict, Verdict]:
    target, intake, stop = parse_target(cluster.url), Intake(), asyncio.Event()
    task = asyncio.create_task(scrape([target], intake.feed, stop=stop))
    await asyncio.sleep(14)
    before = diagnose(intake.window(target.engine, 8)).verdict
    cluster.inject(fault, rank=RANK)
    await asyncio.sleep(16)
    after = diagnose(intake.window(target.engine, 10)).verdict
    stop.set()
    await task
    return before, after


@pytest.mark.parametrize(
    ("fault", "engine"),
    [
        ("pd_queue_skew", EngineFlags(split=Split(role="prefill"))),
        ("speculation_skew", EngineFlags(speculation=Speculation())),
    ],
)
def test_the_fault_is_named_with_its_rank(fault, engine):
    """Four ranks, no past: nobody is blamed before the fault, and its rank is within ten seconds of it."""
    with Cluster(ClusterConfig(ranks=4, seed=5, engine=engine)) as cluster:
        before, after = asyncio.run(_observe(cluster, fault))
    assert before.cause is None, before.summary
    assert after.cause == fault, after.summary
    assert after.klass is Class.LOAD
    assert after.ranks == (RANK,)
