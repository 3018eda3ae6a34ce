"""The product against a running engine: real processes, real HTTP, the truth known to the test alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from collector.intake import Intake
from collector.scrape import parse_target, scrape
from diagnose.engine import diagnose
from diagnose.model import Class, Verdict
from workload.cluster import Cluster
from workload.config import ClusterConfig

pytestmark = [pytest.mark.cluster, pytest.mark.beside(row=2)]

FAULTS = (
    ("request_count_skew", 6, Class.LOAD, (6,)),
    ("whole_group_slow", None, Class.INSUFFICIENT, ()),
    ("stuck_rank", 4, Class.SINGLE_POINT, ()),
)
"""Fault, rank it acts on, class, ranks that may be named; the demo's three are not repeated. The stuck one is last: it stops the engine."""


async def _observe(cluster: Cluster) -> tuple[Verdict, dict[str, Verdict]]:
    target, intake, stop = parse_target(cluster.url), Intake(), asyncio.Event()
    task = asyncio.create_task(scrape([target], intake.feed, stop=stop))
    await asyncio.sleep(18)
    past = intake.window(target.engine, 12)
    said = {}
    for fault, rank, _, _ in FAULTS:
        cluster.inject(fault, rank=rank)
        await asyncio.sleep(14)
        said[fault] = diagnose(intake.window(target.engine, 10), past).verdict
        cluster.clear()
        await asyncio.sleep(4)
    stop.set()
    await task
    return diagnose(past).verdict, said


@pytest.fixture(scope="module")
def observed() -> tuple[Verdict, dict[str, Verdict]]:
    with Cluster(ClusterConfig(seed=21)) as cluster:
        return asyncio.run(_observe(cluster))


def test_a_healthy_engine_is_called_healthy(observed):
    """Before any fault: healthy, nobody named."""
    healthy, _ = observed
    assert healthy.klass is Class.HEALTHY, healthy.summary
    assert healthy.ranks == ()


@pytest.mark.parametrize(("fault", "klass", "ranks"), [(f, k, r) for f, _, k, r in FAULTS])
def test_each_injected_fault_is_named(observed, fault, klass, ranks):
    """The verdict has the fault's class and cause, and names its rank where the signals can."""
    verdict = observed[1][fault]
    assert verdict.cause == fault, verdict.summary
    assert verdict.klass is klass
    assert verdict.ranks == ranks


def test_the_demo_is_right_four_times(tmp_path):
    """`slowrank demo` ends with four right verdicts and exit code 0, and leaves no process of its own behind."""
    out = tmp_path / "demo.json"
    command = [sys.executable, "-m", "slowrank", "demo", "--json", str(out)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as demo:
        said, trouble = demo.communicate(timeout=300)
    assert demo.returncode == 0, said[-3000:] + trouble[-2000:]
    assert json.loads(out.read_text())["right"] == 4
    left = subprocess.run(["pgrep", "-s", str(demo.pid), "-a"], capture_output=True, text=True, check=False)
    assert left.stdout == ""
