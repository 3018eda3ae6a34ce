"""Pages in, windows out: what a failing page costs, and what a window carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector import signals
from collector.errors import ConfigError
from collector.intake import Intake
from collector.model import Page, Problem, Source, Window

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
FULL: dict[str, Any] = json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]
AGE = 0.217604  # of rank 0's snapshot: a window ends where every rank still has a sample
A, B = "http://a:30000", "http://b:30000"


def page(source: Source, body: str | bytes, arrived: float, *, engine: str = "a:30000", node: str = A, error: str | None = None) -> Page:
    raw = body.encode() if isinstance(body, str) else body
    return Page(engine, node, source, arrived, 0.05, 0 if error else 200, "", raw, error)


def metrics(name: str, arrived: float, **where: Any) -> Page:
    return page(Source.SGLANG_METRICS, (CAPTURES / name).read_bytes(), arrived, **where)


def loads(arrived: float, **where: Any) -> Page:
    return page(Source.SGLANG_LOADS, json.dumps(FULL), arrived, **where)


def said(window: Window) -> str:
    return "\n".join(map(str, window.problems))


def test_metrics_and_loads_of_one_engine_make_one_window() -> None:
    """Signals of both sources on one grid; the load pages know two ranks, the counters eight."""
    intake = Intake()
    for k in range(11):
        intake.feed(loads(1000.0 + k))
    intake.feed(metrics("tp8-dp8-ep8-t1.prom", 1000.0))
    intake.feed(metrics("tp8-dp8-ep8-t2.prom", 1010.0))
    window = intake.window("a:30000")
    assert intake.engines() == ("a:30000",)
    assert (intake.scrapes, intake.failures) == (13, 0)
    assert window.ranks == tuple(range(8))
    assert window.mean(signals.RUNNING)[:2] == pytest.approx([52.0, 24.0])
    assert (window.mean(signals.STEPS_ACTIVE) + window.mean(signals.STEPS_IDLE)) == pytest.approx(50.0)
    assert (window.engine.kind, window.engine.facts.version, window.engine.facts.model) == ("sglang", "0.5.23", "deepseek-ai/DeepSeek-V3")


def test_a_failure_is_a_problem_until_the_page_works_again() -> None:
    """Per node and source, the newest words; the other sources go on."""
    intake = Intake()
    intake.feed(page(Source.SGLANG_METRICS, b"", 1000.0, error=f"{A}/metrics: HTTP 404"))
    intake.feed(page(Source.SGLANG_METRICS, b"", 1002.0, error=f"{A}/metrics: no answer within 10 s"))
    intake.feed(page(Source.SGLANG_METRICS, "<html>", 1002.0, node=B))
    for k in range(4):
        intake.feed(loads(1000.0 + k))
    window = intake.window("a:30000")
    assert "no answer within 10 s" in said(window)
    assert "404" not in said(window)
    assert "HTML" in said(window)
    assert f"{B}/metrics" in said(window)
    assert (intake.scrapes, intake.failures) == (4, 3)
    intake.feed(metrics("tp8-dp8-ep8-t1.prom", 1004.0))
    assert "no answer" not in said(intake.window("a:30000"))


def test_a_failure_of_a_page_asked_once_is_forgotten_in_time() -> None:
    """/server_info hung at the start; five minutes later that is no news."""
    intake = Intake(depth_s=30.0)
    intake.feed(page(Source.SGLANG_SERVER_INFO, b"", 1000.0, error=f"{A}/server_info: no answer within 10 s"))
    for k in range(40):
        intake.feed(loads(1000.0 + k))
    assert "no answer" in said(intake.window("a:30000", end=1020.0))
    assert "no answer" not in said(intake.window("a:30000"))


def test_nothing_readable_is_an_empty_window_that_says_why() -> None:
    """No exception, no rank, no interval; the engine is known by its id."""
    intake = Intake()
    intake.feed(page(Source.SGLANG_LOADS, b"", 1000.0, error=f"{A}/v1/loads: nothing listens there; is the engine up?"))
    window = intake.window("a:30000")
    assert (window.ranks, dict(window.values), len(window.edges), window.scrapes) == ((), {}, 1, 0)
    assert "nothing listens there" in said(window)


def test_an_engine_never_fetched_is_a_wrong_id() -> None:
    """And the error lists the right ones."""
    intake = Intake()
    intake.feed(loads(1000.0))
    with pytest.raises(ConfigError, match="'b:1' was ever fetched; fetched so far: a:30000"):
        intake.window("b:1")


def test_engines_do_not_mix() -> None:
    """Same ranks, same pages, two engines."""
    intake = Intake()
    for engine, node in (("a:30000", A), ("b:30000", B)):
        intake.feed(metrics("tp8-dp8-ep8-t1.prom", 1000.0, engine=engine, node=node))
    intake.feed(metrics("tp8-dp8-ep8-t2.prom", 1010.0))
    assert intake.window("a:30000").has(signals.STEPS_ACTIVE)
    assert not intake.window("b:30000").has(signals.STEPS_ACTIVE)


def test_the_newest_seconds_and_an_earlier_end() -> None:
    """`seconds` counts back from `end`, which is the newest page by default."""
    intake = Intake()
    for k in range(31):
        intake.feed(loads(1000.0 + k))
    latest = intake.window("a:30000", 10.0)
    assert latest.start == 1020.0
    assert latest.end == pytest.approx(1030.0 - AGE)
    earlier = intake.window("a:30000", 10.0, end=1015.0)
    assert (earlier.start, earlier.end) == (1005.0, 1015.0)


def test_a_window_is_no_deeper_than_the_intake() -> None:
    """Rare pages lie further back than depth_s; they are not mixed in."""
    intake = Intake(depth_s=30.0)
    for k in range(20):
        intake.feed(loads(1000.0 + 5 * k))
    window = intake.window("a:30000")
    assert window.end - window.start == pytest.approx(30.0 - AGE)


def test_hostile_pages_never_raise() -> None:
    """Whatever a body holds, the outcome is a page read or a problem kept."""
    bodies = [
        b"",
        b"\x00" * 100,
        b"{" * 10_000,
        b"[[]]",
        b"# TYPE\n{}{}",
        b'sglang:x{dp_rank="0"',
        json.dumps(FULL).encode()[:-9],
        b"\xff" * 50,
    ]
    intake = Intake()
    for k, body in enumerate(bodies):
        for source in Source:
            intake.feed(page(source, body, 1000.0 + k))
    assert intake.scrapes + intake.failures == len(bodies) * len(Source)
    assert len(intake.window("a:30000").problems) <= 40


def test_notes_are_on_every_window() -> None:
    """Such as a capture that is cut off."""
    intake = Intake()
    intake.feed(loads(1000.0))
    intake.note(Problem("x.capture", "the file ends early"))
    assert "x.capture: the file ends early" in said(intake.window("a:30000"))


def test_a_window_does_not_change_when_more_is_fed() -> None:
    """It is a copy: the ring below it moves on."""
    intake = Intake(depth_s=10.0)
    for k in range(11):
        intake.feed(loads(1000.0 + k))
    window = intake.window("a:30000")
    before = {name: found.copy() for name, found in window.values.items()}
    for k in range(11, 40):
        intake.feed(loads(1000.0 + k))
    assert all(np.array_equal(before[name], found, equal_nan=True) for name, found in window.values.items())


VLLM = (CAPTURES.parent / "vllm-0.32.0" / "slowmoe-1.prom").read_bytes()


def vllm(arrived: float, **where: Any) -> Page:
    return page(Source.VLLM_METRICS, VLLM, arrived, **where)


def test_what_an_engine_of_another_kind_has_not_is_no_problem() -> None:
    """vLLM has no /v1/loads, and in development mode a /server_info that says other things; a node without /metrics is a problem though."""
    intake = Intake()
    intake.feed(page(Source.SGLANG_SERVER_INFO, '{"vllm_config": "..."}', 999.0))
    intake.feed(page(Source.SGLANG_LOADS, "", 1000.0, error=f"{A}/v1/loads: HTTP 404"))
    intake.feed(page(Source.SGLANG_METRICS, "", 1000.0, node=B, error=f"{B}/metrics: nothing listens there"))
    intake.feed(vllm(1000.0))
    window = intake.window("a:30000")
    assert window.engine.kind == "vllm"
    assert "v1/loads" not in said(window)
    assert f"{B}/metrics: nothing listens there" in said(window)


def test_two_kinds_under_one_target_are_not_joined() -> None:
    """The first page decides, the other engine's is a problem with a way out."""
    intake = Intake()
    intake.feed(vllm(1000.0))
    intake.feed(metrics("tp8-dp8-ep8-t1.prom", 1000.0, node=B))
    window = intake.window("a:30000")
    assert (window.engine.kind, len(window.ranks)) == ("vllm", 2)
    assert "a page of sglang under a target whose other pages are of vllm; give each engine as a target of its own" in said(window)


def test_a_log_is_no_page() -> None:
    """A capture that claims so is refused."""
    intake = Intake()
    intake.feed(page(Source.VLLM_LOG, "x", 1000.0))
    assert "is no page that an engine serves" in said(intake.window("a:30000"))
