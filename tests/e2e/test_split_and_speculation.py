"""A split engine and a speculating one, broken for real: the rule of the fault's name speaks, and names the fault's rank."""

from __future__ import annotations

import pytest

from collector.model import Window
from diagnose.engine import diagnose
from diagnose.model import Class
from tests.e2e.side_by_side import Play, play
from workload.config import ClusterConfig, EngineFlags
from workload.scheduling.settings import Speculation, Split

pytestmark = [pytest.mark.cluster, pytest.mark.beside(row=3)]

RANK = 2

ENGINES = {"pd_queue_skew": EngineFlags(split=Split(role="prefill")), "speculation_skew": EngineFlags(speculation=Speculation())}


@pytest.fixture(scope="module")
def played() -> dict[str, tuple[Window, Window]]:
    plays = [Play(ClusterConfig(ranks=4, seed=5, engine=engine), fault, RANK) for fault, engine in ENGINES.items()]
    return dict(zip(ENGINES, play(plays), strict=True))


@pytest.mark.parametrize("fault", ENGINES)
def test_the_fault_is_named_with_its_rank(played, fault):
    """Four ranks, no past: nobody is blamed before the fault, and its rank is within ten seconds of it."""
    before, after = (diagnose(window).verdict for window in played[fault])
    assert before.cause is None, before.summary
    assert after.cause == fault, after.summary
    assert after.klass is Class.LOAD
    assert after.ranks == (RANK,)
