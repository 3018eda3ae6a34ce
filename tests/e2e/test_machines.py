"""The product against a running engine and this machine's own /proc: whose process is starved, held or stopped, whose card is hot."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from collector.intake import Intake
from collector.model import Source
from collector.scrape import parse_target, scrape
from collector.targets import with_machines
from diagnose.engine import diagnose
from diagnose.model import Class, Verdict
from workload.cluster import Cluster
from workload.config import ClusterConfig

pytestmark = [pytest.mark.cluster, pytest.mark.beside(row=2)]

STARVED, HOT, STOPPED, HELD = 2, 1, 3, 1
QUOTA_US, PERIOD_US = 5_000, 1_000_000
"""Half of what a rank of the virtual device needs, a hundredth of a core: steps took twice as long."""

SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextmanager
def theft(pid: int) -> Iterator[None]:
    """Two competitors on the core of a process, each with seventy times its weight (nice 0 against 19): it gets 1 / 138 of the core."""
    allowed = os.sched_getaffinity(pid)
    core = max(allowed)
    os.sched_setaffinity(pid, {core})
    os.setpriority(os.PRIO_PROCESS, pid, 19)
    thieves = [subprocess.Popen([sys.executable, "-c", SPIN, str(core)]) for _ in range(2)]
    try:
        yield
    finally:
        for thief in thieves:
            thief.kill()
            thief.wait()
        os.sched_setaffinity(pid, allowed)


class Groups:
    """Where this kernel takes CPU quotas: cgroup v2 with its cpu controller, or v1's."""

    def __init__(self) -> None:
        top = Path("/sys/fs/cgroup")
        self.v2 = (top / "cgroup.controllers").exists()
        self.top = top if self.v2 else top / "cpu"

    def why_not(self) -> str:
        """Why no group can be made here; "" where one can."""
        if self.v2 and "cpu" not in (self.top / "cgroup.subtree_control").read_text().split():
            return "the cpu controller is not handed to groups below the topmost (cgroup.subtree_control)"
        probe = self.top / f"slowrank-probe-{os.getpid()}"
        try:
            probe.mkdir()
            probe.rmdir()
        except OSError as error:
            return f"this user can make no CPU cgroup below {self.top}: {error.strerror}"
        return ""

    @contextmanager
    def quota(self, pid: int) -> Iterator[None]:
        """The process in a group of its own with a quota; put back where it was afterwards."""
        lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
        own = next(path for _, controllers, path in lines if (not controllers if self.v2 else "cpu" in controllers.split(",")))
        group = self.top / f"slowrank-test-{os.getpid()}"
        group.mkdir()
        try:
            if self.v2:
                (group / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
            (group / "cgroup.procs").write_text(str(pid))
            yield
        finally:
            with suppress(OSError):  # the process may have ended
                (self.top / own.strip("/") / "cgroup.procs").write_text(str(pid))
            group.rmdir()


GROUPS = Groups()


async def _observe(cluster: Cluster) -> dict[str, Verdict]:
    target = with_machines(parse_target(cluster.url), [f"{cluster.url}/dcgm/metrics"], frozenset({Source.PROCFS}))
    intake, stop = Intake(), asyncio.Event()
    task = asyncio.create_task(scrape([target], intake.feed, stop=stop))
    await asyncio.sleep(16)
    past = intake.window(target.engine, 12)
    said = {"healthy": diagnose(past).verdict}
    cluster.inject("gpu_throttled", rank=HOT)
    await asyncio.sleep(14)
    said["hot"] = diagnose(intake.window(target.engine, 10), past).verdict
    cluster.clear()
    if not GROUPS.why_not():
        with GROUPS.quota(cluster.pid(f"rank{HELD}")):
            await asyncio.sleep(14)
            said["held"] = diagnose(intake.window(target.engine, 10), past).verdict
    with theft(cluster.pid(f"rank{STARVED}")):  # after which that rank stays at nice 19: on a busy machine it is late from then on
        await asyncio.sleep(16)
        said["starved"] = diagnose(intake.window(target.engine, 12), past).verdict
    await asyncio.sleep(2)
    os.kill(cluster.pid(f"rank{STOPPED}"), signal.SIGSTOP)
    await asyncio.sleep(12)
    said["stopped"] = diagnose(intake.window(target.engine, 10), past).verdict
    stop.set()
    await task
    return said


@pytest.fixture(scope="module")
def said() -> dict[str, Verdict]:
    with Cluster(ClusterConfig(ranks=4, seed=5)) as cluster:
        return asyncio.run(_observe(cluster))


def test_nothing_is_blamed_before_anything_is_wrong(said):
    """Level cards and processes that run: healthy."""
    assert said["healthy"].klass is Class.HEALTHY, said["healthy"].summary


def test_the_hot_card_is_named(said):
    """The group is slow, and one card says why."""
    verdict = said["hot"]
    assert (verdict.cause, verdict.ranks) == ("gpu_throttled", (HOT,)), verdict.summary


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel counts no run-queue delay")  # noqa: PTH110
def test_the_process_whose_cpu_is_taken_is_named_with_the_reason(said):
    """Its run-queue delay stands apart from its peers'."""
    verdict = said["starved"]
    assert (verdict.cause, verdict.ranks) == ("host_cpu_starved", (STARVED,)), verdict.summary
    assert "its process has its CPU taken by something else" in verdict.summary


@pytest.mark.skipif(bool(GROUPS.why_not()), reason=GROUPS.why_not())
def test_the_process_that_its_cgroup_holds_is_named_with_the_reason(said):
    """A quota smaller than what it needs: the kernel counts the time that it was held."""
    verdict = said["held"]
    assert (verdict.cause, verdict.ranks) == ("host_cpu_starved", (HELD,)), verdict.summary
    assert "throttled by its cgroup's CPU quota" in verdict.summary


def test_the_stopped_process_is_named_by_its_state(said):
    """All ranks stand still; the state of one process tells which stopped them."""
    verdict = said["stopped"]
    assert (verdict.cause, verdict.ranks) == ("stuck_rank", (STOPPED,)), verdict.summary
    assert "state T" in verdict.summary
