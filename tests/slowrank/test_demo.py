"""The demo's play: it injects, reads, clears and scores; the diagnosis gets windows only; nothing is left on."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pytest

from collector import signals
from collector.errors import SlowrankError
from collector.model import Engine, Page, Window
from collector.scrape import Target
from diagnose.model import Class, EngineDiagnosis, LostTime, Severity, Verdict
from slowrank import demo
from slowrank.score import Score, Truth
from workload.nursery import ClusterError

LOG: list[Any] = []


class FakeCluster:
    """Writes down what is asked of it."""

    url = "http://127.0.0.1:1"
    dies = False

    def __init__(self, config: Any) -> None:
        self.config = config

    def __enter__(self) -> Self:
        LOG.append("start")
        return self

    def __exit__(self, *_error: object) -> None:
        LOG.append("stop")

    def inject(self, fault: str, *, rank: int | None) -> None:
        LOG.append(("inject", fault, rank))

    def clear(self) -> None:
        LOG.append("clear")

    def check(self) -> None:
        if self.dies and ("inject", "context_length_skew", 0) in LOG:
            raise ClusterError("rank3 has died")


class FakeIntake:
    """An engine of which every rank works."""

    def feed(self, page: Page) -> None:
        """Nothing comes."""

    def engines(self) -> tuple[str, ...]:
        return ("e",)

    def window(self, engine: str, seconds: float) -> Window:
        LOG.append(("window", seconds))
        ranks = tuple(range(8))
        return Window(Engine("e", "sglang"), np.array([0.0, seconds]), ranks, {signals.RUNNING: np.full((8, 1), 5.0)}, 3)


async def _scrape(targets: Sequence[Target], on_page: Callable[[Page], None], *, stop: asyncio.Event) -> None:
    await stop.wait()
    LOG.append("collector stopped")


def _diagnose(window: Window, baseline: Window | None) -> EngineDiagnosis:
    LOG.append(("diagnose", baseline is not None))
    verdict = Verdict(Class.HEALTHY, None, (), 0.9, "", Severity.NOTE, None, LostTime(None))
    return EngineDiagnosis(window.engine, 0.0, 10.0, 3, (), None, verdict, ())


@pytest.fixture(autouse=True)
def _stage(monkeypatch: pytest.MonkeyPatch) -> None:
    LOG.clear()
    for name, value in {"Intake": FakeIntake, "Cluster": FakeCluster, "scrape": _scrape, "diagnose": _diagnose}.items():
        monkeypatch.setattr(demo, name, value)
    for name in ("TAKES_EFFECT", "COLLECT", "RECOVER", "WARM", "_TICK"):
        monkeypatch.setattr(demo, name, 0.01)


def test_one_fault_of_each_class_on_its_own_rank() -> None:
    """The acts of the demo, also for a small group."""
    assert demo.acts(8) == (
        Truth(Class.HEALTHY),
        Truth(Class.LOAD, "context_length_skew", 0),
        Truth(Class.SINGLE_POINT, "host_cpu_starved", 5),
        Truth(Class.STRUCTURAL, "expert_hotspot", 3),
    )
    for ranks in range(4, 17):
        assert all(truth.rank is None or truth.rank < ranks for truth in demo.acts(ranks))


def test_the_diagnosis_gets_windows_and_the_healthy_one_as_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inject, read, clear, diagnose, three times after a healthy window; then everything is stopped."""
    shown: list[Score] = []
    scores = demo.play(8, 0, shown.append, lambda _text: None)
    assert shown == scores
    assert [s.right for s in scores] == [True, False, False, False]
    acted = [entry for entry in LOG if entry != ("window", 3.0)]
    window = ("window", 0.01)
    assert acted == [
        "start",
        *(window, ("diagnose", False)),
        *(("inject", "context_length_skew", 0), window, "clear", ("diagnose", True)),
        *(("inject", "host_cpu_starved", 5), window, "clear", ("diagnose", True)),
        *(("inject", "expert_hotspot", 3), window, "clear", ("diagnose", True)),
        "collector stopped",
        "stop",
    ]


def test_a_dead_workload_ends_the_demo_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that died is named, faults are cleared, the cluster is stopped."""
    monkeypatch.setattr(FakeCluster, "dies", True)
    with pytest.raises(SlowrankError, match="the workload failed: rank3 has died"):
        demo.play(8, 0, lambda _score: None, lambda _text: None)
    assert LOG[-3:] == ["clear", "collector stopped", "stop"]


def test_an_interrupt_leaves_nothing_on() -> None:
    """Whatever ends a report early, the fault is cleared and the cluster stopped."""

    def interrupt(_score: Score) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo.play(8, 0, interrupt, lambda _text: None)
    assert LOG[-1] == "stop"


def test_a_workload_that_never_warms_up_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine too busy for the demo gets a word and a smaller proposal, not four wrong verdicts."""
    monkeypatch.setattr(FakeIntake, "engines", lambda self: ())
    monkeypatch.setattr(demo, "WARM_LIMIT", 0.05)
    with pytest.raises(SlowrankError, match="try --ranks 4"):
        demo.play(8, 0, lambda _score: None, lambda _text: None)
