"""A real vLLM 0.32 with two ranks on this machine's CPU, and what slowrank says of it. docs/vllm.md says how to have one.

Opt-in: a start of minutes for each of two servers, and 6 GB of memory. Only structure is asserted: steps on a CPU that others use have no
steady length. SLOWRANK_VLLM_REPORTS names a folder that keeps each report as text.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.real_vllm.server import PYTHON, Request, Server, served

SLOW, MS = 1, 60.0
FOR = "25s"
KEPT = os.environ.get("SLOWRANK_VLLM_REPORTS", "")

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="SLOWRANK_VLLM_PYTHON names no interpreter with vLLM (docs/vllm.md)"),
]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served("dense", tmp_path_factory.mktemp("dense")) as server:
        yield server


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served("moe", tmp_path_factory.mktemp("moe")) as server:
        yield server


def slowrank(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "slowrank", *arguments], capture_output=True, text=True, check=False)


def diagnosed(name: str, folder: Path, server: Server, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the engine's part of the report, of pages that are recorded first; the text is kept if wanted."""
    capture = folder / f"{name}.slowrank"
    recorded = slowrank("record", server.url, "--for", FOR, "-o", str(capture), *(one for one in more if one == "--procfs"))
    assert capture.exists(), recorded.stderr
    options = [one for one in more if one != "--procfs"]
    done = slowrank("diagnose", str(capture), *options, "--format", "json")
    if KEPT:
        said = slowrank("diagnose", str(capture), *options)
        Path(KEPT, f"{name}.txt").write_text(f"{said.stdout}{said.stderr}exit {said.returncode}\n")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["engines"][0]


def long_on_rank_0(rng: random.Random) -> Request:
    """Four of five requests are long and pinned to rank 0."""
    if rng.random() < 0.8:
        return Request(rng.randint(700, 900), rng.randint(60, 100), 0)
    return Request(rng.randint(8, 40), rng.randint(60, 100), 1)


def test_a_slow_dense_rank_is_named(dense: Server, tmp_path: Path) -> None:
    """Its own steps say so; the counts of requests, which the balancer holds alike, differ by far less."""
    with dense.users(), dense.delayed(SLOW, MS):
        code, engine = diagnosed("dense-slow", tmp_path, dense)
    verdict, rows = engine["verdict"], engine["rank_table"]
    assert (code, verdict["class"], verdict["cause"], verdict["ranks"]) == (1, "single-point", "slow_rank", [SLOW])
    running, steps = ([row[name] for row in rows] for name in ("running", "step_time"))
    assert max(running) / min(running) < 0.7 * max(steps) / min(steps)


def test_uneven_dense_requests_are_load(dense: Server, tmp_path: Path) -> None:
    """Long requests pinned to one rank: it steps longer, and its load says why."""
    with dense.users(long_on_rank_0):
        code, engine = diagnosed("dense-skew", tmp_path, dense)
    assert (code, engine["verdict"]["class"], engine["verdict"]["ranks"]) == (1, "load", [0])


def test_in_a_lockstep_a_fixed_delay_names_nobody(moe: Server, tmp_path: Path) -> None:
    """All steps are equally long, and a sleep shows in no count of the kernel's: insufficient evidence, also with --procfs."""
    with moe.users(), moe.delayed(SLOW, MS):
        code, engine = diagnosed("moe-slow", tmp_path, moe, "--clock", "lockstep", "--procfs")
    verdict = engine["verdict"]
    assert (code, verdict["class"], verdict["ranks"]) == (3, "insufficient-evidence", [])
    assert "one rank may be slow" in json.dumps(engine["findings"]) + json.dumps(verdict)


def test_in_a_lockstep_the_kernel_names_the_starved_rank(moe: Server, tmp_path: Path) -> None:
    """What steals the CPU of one rank's worker shows in that process' run-queue delay, and in nothing of vLLM's."""
    with moe.users():
        diagnosed("moe-healthy", tmp_path, moe, "--procfs", "--clock", "lockstep")
        with moe.starved(SLOW):
            past = str(tmp_path / "moe-healthy.slowrank")
            code, engine = diagnosed("moe-starved", tmp_path, moe, "--procfs", "--clock", "lockstep", "--baseline", past)
    verdict = engine["verdict"]
    assert (code, verdict["cause"], verdict["ranks"]) == (1, "host_cpu_starved", [SLOW])


def test_uneven_lockstep_requests_blame_no_rank(moe: Server, tmp_path: Path) -> None:
    """At this size steps do not follow attention, so nothing is lost to how requests are dealt, and no card is blamed for it."""
    with moe.users(long_on_rank_0):
        _, engine = diagnosed("moe-skew", tmp_path, moe, "--clock", "lockstep")
    assert engine["verdict"]["class"] in {"load", "insufficient-evidence", "healthy"}


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
