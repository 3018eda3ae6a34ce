"""A real vLLM 0.32 with two ranks on a CPU and a model with experts: all ranks meet in every forward. docs/vllm.md says how to have one.

Opt-in: a start of minutes, and 6 GB of memory. Only structure is asserted: steps on a CPU that others use have no steady length.
SLOWRANK_VLLM_REPORTS names a folder that keeps each report as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.real_vllm.server import MS, PYTHON, SLOW, Server, diagnosed, long_on_rank_0, served, slowrank

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="SLOWRANK_VLLM_PYTHON names no interpreter with vLLM (docs/vllm.md)"),
]


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served("moe", tmp_path_factory.mktemp("moe")) as server:
        yield server


def test_in_a_lockstep_a_fixed_delay_names_nobody(moe: Server, tmp_path: Path) -> None:
    """All steps are equally long, and a sleep shows in no count of the kernel's: insufficient evidence, also with --procfs."""
    with moe.users(), moe.delayed(SLOW, MS):
        code, engine = diagnosed("moe-slow", tmp_path, moe, "--clock", "lockstep", "--procfs")
    verdict = engine["verdict"]
    assert (code, verdict["class"], verdict["ranks"]) == (3, "insufficient-evidence", [])
    assert "one rank may be slow" in json.dumps(engine["findings"]) + json.dumps(verdict)


def test_in_a_lockstep_the_kernel_names_the_starved_rank(moe: Server, tmp_path: Path) -> None:
    """What steals the CPU of one rank's worker shows in that process' run-queue delay, and in nothing of vLLM's."""
    with moe.users(), moe.starved(SLOW):
        code, engine = diagnosed("moe-starved", tmp_path, moe, "--procfs", "--clock", "lockstep")
    verdict = engine["verdict"]
    assert (code, verdict["cause"], verdict["ranks"]) == (1, "host_cpu_starved", [SLOW])


def test_uneven_lockstep_requests_are_load_against_a_past(moe: Server, tmp_path: Path) -> None:
    """All steps are equally long, so only the healthy past says that they grew with the busiest rank's work."""
    with moe.users():
        diagnosed("moe-healthy", tmp_path, moe, "--clock", "lockstep")
    with moe.users(long_on_rank_0):
        past = str(tmp_path / "moe-healthy.slowrank")
        code, engine = diagnosed("moe-skew", tmp_path, moe, "--clock", "lockstep", "--baseline", past)
    assert (code, engine["verdict"]["class"], engine["verdict"]["ranks"]) == (1, "load", [0])


def test_pinned_prompts_do_not_blame_a_rank_for_a_fixed_delay(moe: Server) -> None:
    """Each prompt is computed on the rank that it is pinned to; a delay that every step pays slows all prompts alike."""
    with moe.delayed(SLOW, MS):
        done = slowrank("probe", moe.url, "--tokens", "900", "--yes", "--format", "json")
    assert json.loads(done.stdout)["ranks"] in ([], [SLOW])


def test_a_stopped_rank_is_stuck_while_health_says_200(moe: Server, tmp_path: Path) -> None:
    """Last, as requests are lost by it: all ranks stand, and the state of one process says which stopped them."""
    with moe.users(), moe.stopped(SLOW):
        code, engine = diagnosed("moe-stopped", tmp_path, moe, "--clock", "lockstep", "--procfs")
        health = httpx.get(f"{moe.url}/health", timeout=5).status_code
    verdict = engine["verdict"]
    assert (code, verdict["cause"], verdict["ranks"], health) == (1, "stuck_rank", [SLOW], 200)
