"""What /proc says of scheduler processes: titles, numbers, processes that vanish, quotas of containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import signals
from collector.errors import SourceError
from collector.hardware import procfs
from collector.hardware.procfs import Look, Looker
from collector.hardware.titles import Place, place_of
from collector.model import Page, Problem, Source

STAT = "{pid} (sglang::schedul) x) {state} {parent} " + "0 " * 34 + "{cpu} 0 0"  # a command's name may hold brackets; cpu is field 39


class Machine:
    """A folder that looks like /proc and /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("sys/devices/system/node/node0/cpulist", "0-3\n")
        self.write("sys/devices/system/node/node1/cpulist", "4-5,7\n")
        self.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 total=5\n")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def process(
        self,
        pid: int,
        title: str,
        *,
        state: str = "S",
        cpu: int = 0,
        ran: int = 0,
        waited: int = 0,
        group: str = "0::/",
        parent: int = 1,
        sockets: tuple[int, ...] = (),
    ) -> None:
        self.write(f"proc/{pid}/cmdline", title + "\0")
        self.write(f"proc/{pid}/stat", STAT.format(pid=pid, state=state, cpu=cpu, parent=parent))
        (self.root / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)
        for k, inode in enumerate(sockets):
            (self.root / f"proc/{pid}/fd/{k + 3}").symlink_to(f"socket:[{inode}]")
        self.write(f"proc/{pid}/schedstat", f"{ran} {waited} 77\n")
        self.write(f"proc/{pid}/status", "Name:\tx\nCpus_allowed_list:\t0-5\nvoluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t4\n")
        self.write(f"proc/{pid}/cgroup", group + "\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def page(body: bytes) -> Page:
    return Page("e", "localhost", Source.PROCFS, 1000.0, 0.0, 200, "application/json", body)


@dataclass(frozen=True)
class Ranks:
    """A page by rank; of a rank of several processes the largest value."""

    times: set[int]
    values: dict[str, dict[int, float]]
    pids: dict[int, int]
    problems: tuple[Problem, ...]


def by_rank(look: Look) -> Ranks:
    values: dict[str, dict[int, float]] = {}
    for name, found in look.values.items():
        for place, value in found.items():
            own = values.setdefault(name, {})
            own[place.rank] = max(value, own.get(place.rank, 0.0))
    pids = {rank: process.pid for rank, process in look.first().items()}
    return Ranks({place.rank for place in look.found}, values, pids, look.problems)


def read(machine: Machine, kind: str = "sglang", ports: tuple[int, ...] = ()) -> Ranks:
    return by_rank(procfs.read(page(Looker(ports, machine.root).look()), kind))


@pytest.mark.parametrize(
    ("title", "kind", "place"),
    [
        ("sglang::scheduler_DP3_TP3_EP3", "sglang", Place(3, tensor=3)),
        ("sglang::scheduler_DP1_PP2_ATTN_CP5_MOE_DP7_TP4_EP6", "sglang", Place(1, stage=2, tensor=4)),
        ("sglang::scheduler_TP1", "sglang", Place(0, tensor=1)),
        ("sglang::scheduler", "sglang", Place(0)),
        ("VLLM::EngineCore_DP2", "vllm", Place(2)),
        ("VLLM::EngineCore", "vllm", Place(0)),
        ("VLLM::EngineCore_DP2", "sglang", None),
        ("VLLM::Worker_DP1_EP1", "vllm", Place(1, worker=True)),
        ("VLLM::Worker_DP1_PP1_PCP3_TP2_DCP5", "vllm", Place(1, True, 1, 2)),
        ("VLLM::APIServer_0", "vllm", None),
        ("VLLM::DPCoordinator", "vllm", None),
        ("sglang::detokenizer", "sglang", None),
        ("sglang::scheduler_DP99999", "sglang", None),
        ("python -m sglang::scheduler_DP0", "sglang", None),
    ],
)
def test_a_title_states_a_place(title: str, kind: str, place: Place | None) -> None:
    """The forms of the engines' own code; MOE_DP is not the DP rank; other programs are none."""
    assert place_of(title, kind) == place


@given(st.text(max_size=250), st.sampled_from(["sglang", "vllm", "?"]))
def test_no_title_breaks_the_reader(text: str, kind: str) -> None:
    """Any text is a place or none."""
    for title in (text, "sglang::scheduler_" + text):
        found = place_of(title, kind)
        assert found is None or 0 <= found.rank < 4096


def test_a_process_gives_its_rank_what_the_kernel_counts(machine: Machine) -> None:
    """Nanoseconds become seconds; pressure is the node's and the same for all its ranks."""
    machine.process(100, "sglang::scheduler_DP0_TP0", ran=2_000_000_000, waited=5_000_000)
    machine.process(101, "sglang::scheduler_DP1_TP1", state="T", waited=7_000_000)
    machine.process(102, "sglang::scheduler_DP2_TP2", state="D")
    machine.process(103, "python -c secret")
    found = read(machine)
    assert found.problems == ()
    assert found.times == {0, 1, 2}
    assert found.values[signals.RUN_QUEUE_DELAY] == {0: 0.005, 1: 0.007, 2: 0.0}
    assert found.values[signals.PROCESS_CPU][0] == 2.0
    assert found.values[signals.PROCESS_STOPPED] == {0: 0.0, 1: 1.0, 2: 0.0}
    assert found.values[signals.PROCESS_BLOCKED] == {0: 0.0, 1: 0.0, 2: 1.0}
    assert found.values[signals.INVOLUNTARY_SWITCHES] == dict.fromkeys((0, 1, 2), 4.0)
    assert found.values[signals.CPU_PRESSURE] == pytest.approx(dict.fromkeys((0, 1, 2), 0.123456))


def test_a_page_tells_nothing_of_other_processes(machine: Machine) -> None:
    """Only schedulers, their CPUs and the NUMA node that they ran on."""
    machine.process(100, "sglang::scheduler_DP0_TP0", cpu=7)
    machine.process(103, "python -c secret")
    body = Looker(root=machine.root).look()
    assert b"secret" not in body
    (process,) = json.loads(body)["processes"]
    assert (process["numa"], process["cpus"], process["pid"]) == (1, "0-5", 100)


def test_the_first_process_of_a_rank_speaks_for_it(machine: Machine) -> None:
    """With two TP ranks inside a DP rank the lower one does, as on the engine's own pages; what the kernel counts is there of both."""
    machine.process(100, "sglang::scheduler_DP0_TP1", waited=9_000_000_000)
    machine.process(101, "sglang::scheduler_DP0_TP0", waited=1_000_000_000)
    found = read(machine)
    assert found.pids == {0: 101}
    assert found.values[signals.RUN_QUEUE_DELAY] == {0: 9.0}


def test_a_worker_is_its_parents_ranks(machine: Machine) -> None:
    """vLLM: workers of a model without experts do not say their rank, the core above them does; where nothing says it they are left out."""
    machine.process(100, "VLLM::EngineCore_DP0")
    machine.process(101, "VLLM::EngineCore_DP1")
    machine.process(110, "VLLM::Worker_TP0", parent=100)
    machine.process(111, "VLLM::Worker_TP0", parent=101, state="T", waited=3_000_000_000)
    machine.process(112, "VLLM::Worker_TP1", parent=101)
    machine.process(113, "VLLM::Worker", parent=99)
    found = read(machine, "vllm")
    assert (found.problems, found.pids) == ((), {0: 100, 1: 101})
    assert found.values[signals.PROCESS_STOPPED] == {0: 0.0, 1: 1.0}
    assert found.values[signals.RUN_QUEUE_DELAY] == {0: 0.0, 1: 3.0}


def test_one_title_twice_is_ambiguous(machine: Machine) -> None:
    """Two engines on a node: no values for the rank that both have, the others stay."""
    for pid, rank in ((100, 0), (101, 1), (200, 0)):
        machine.process(pid, f"sglang::scheduler_DP{rank}_TP{rank}")
    found = read(machine)
    assert set(found.times) == {1}
    assert "rank 0: several processes have the same title" in str(found.problems[0])


def test_no_scheduler_in_sight_is_said(machine: Machine) -> None:
    """A container without the host's processes sees none, and is told how to."""
    machine.process(103, "python")
    found = read(machine)
    assert not found.values
    assert "hostPID: true" in str(found.problems[0])


def test_a_process_that_vanishes_is_left_out_and_its_successor_found(machine: Machine) -> None:
    """A half-read process is no reading; after a death the next look searches again."""
    machine.process(100, "sglang::scheduler_DP0_TP0")
    machine.process(101, "sglang::scheduler_DP1_TP1")
    looker = Looker(root=machine.root)
    assert len(json.loads(looker.look())["processes"]) == 2
    (machine.root / "proc/101/stat").unlink()
    (machine.root / "proc/101/cmdline").write_text("")
    machine.process(205, "sglang::scheduler_DP1_TP1")
    assert [p["pid"] for p in json.loads(looker.look())["processes"]] == [100]
    assert [p["pid"] for p in json.loads(looker.look())["processes"]] == [100, 205]


@pytest.mark.parametrize(
    ("group", "files", "seconds"),
    [
        ("0::/pod/app", {"pod/app/cpu.stat": "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000\n"}, 1.5),
        ("0::/pod/app", {"pod/app/cpu.stat": "throttled_usec 0\n", "pod/cpu.stat": "throttled_usec 2500000\n"}, 2.5),
        ("4:cpu,cpuacct:/pod\n0::/", {"cpu/pod/cpu.stat": "nr_throttled 1\nthrottled_time 3000000000\n"}, 3.0),
    ],
)
def test_a_quota_is_found_on_the_cgroup_or_above_it(machine: Machine, group: str, files: dict[str, str], seconds: float) -> None:
    """cgroup v2 in microseconds, v1 in nanoseconds; a pod's quota throttles the container below, whose own count stays 0."""
    for path, text in files.items():
        machine.write(f"sys/fs/cgroup/{path}", text)
    machine.process(100, "sglang::scheduler_DP0_TP0", group=group)
    assert read(machine).values[signals.CGROUP_THROTTLED] == {0: seconds}


def test_a_path_out_of_the_cgroup_name_space_leads_nowhere(machine: Machine) -> None:
    """What the kernel shows of a foreign name space (/../..) is not followed."""
    machine.write("sys/fs/cpu.stat", "throttled_usec 9\n")
    machine.process(100, "sglang::scheduler_DP0_TP0", group="0::/../x")
    assert signals.CGROUP_THROTTLED not in read(machine).values


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"format": "slowrank.procfs/9"}', b'{"format": "slowrank.procfs/1", "processes": [{}]}']
)
def test_another_body_is_refused(body: bytes) -> None:
    """With what was seen."""
    with pytest.raises(SourceError):
        procfs.read(page(body), "sglang")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    code = "import setproctitle, time; setproctitle.setproctitle('sglang::scheduler_DP97_TP0'); print('up', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel counts no run-queue delay")
def test_this_machines_own_proc_is_read(child: subprocess.Popen[bytes]) -> None:
    """A real process with an engine's title: its numbers are the kernel's."""
    found = by_rank(procfs.read(page(Looker().look()), "sglang"))
    assert 97 in found.times
    assert 0.0 < found.values[signals.PROCESS_CPU][97] < 60.0
    assert found.values[signals.PROCESS_STOPPED][97] == 0.0
    os.kill(child.pid, 19)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert by_rank(procfs.read(page(Looker().look()), "sglang")).values[signals.PROCESS_STOPPED][97] == 1.0
