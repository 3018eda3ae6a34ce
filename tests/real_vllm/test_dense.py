"""A real vLLM 0.32 with two ranks on a CPU and a model without experts: each rank steps for itself. docs/vllm.md says how to have one.

Opt-in: a start of minutes, and 6 GB of memory. Only structure is asserted: steps on a CPU that others use have no steady length.
SLOWRANK_VLLM_REPORTS names a folder that keeps each report as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_vllm.server import MS, PYTHON, SLOW, Server, diagnosed, long_on_rank_0, served

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="SLOWRANK_VLLM_PYTHON names no interpreter with vLLM (docs/vllm.md)"),
]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served("dense", tmp_path_factory.mktemp("dense")) as server:
        yield server


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
