"""vLLM through the whole path, from page bytes to verdict: captured runs of vLLM 0.32.0, cases from the field, and a running workload.

The captures are pairs of pages. A pair supports rates and not persistence, so each is also read as ten pages with counters that grow evenly
between the two: the same rates, in a window long enough to say that they last.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from collector.engines.kinds import recognise
from collector.intake import Intake
from collector.model import Clock, Page, Window
from diagnose.engine import diagnose
from diagnose.model import Class, EngineDiagnosis
from tests.e2e.side_by_side import Play, play
from workload.config import ClusterConfig, VllmFlags
from workload.vllm.dense import NAME

TESTS = Path(__file__).parent.parent
CAPTURES, CASES = TESTS / "captures" / "vllm-0.32.0", TESTS / "field_cases"
URL = "http://engine:8000"
_LINE = re.compile(rb"^(vllm:\S*?\{.*\}) (\S+)$")

RUNS = (("", 10.0), ("slowmoe-", 18.0), ("slowdense-", 18.0))
"""The pair's name and the seconds between its pages."""


def page(body: bytes, at: float) -> Page:
    return Page(URL, URL, recognise(body), 1.8e9 + at, 0.01, 200, "text/plain", body)


def window(pages: list[Page], clock: Clock | None = None) -> Window:
    intake = Intake(clock=clock)
    for one in pages:
        intake.feed(one)
    return intake.window(URL)


def pair(name: str) -> tuple[bytes, bytes]:
    first, second = ((CAPTURES / f"{name}{i}.prom").read_bytes() for i in (1, 2))
    return first, second


def evenly(name: str, seconds: float, pages: int = 10) -> list[Page]:
    first, second = pair(name)
    ends = {m[1]: float(m[2]) for line in second.splitlines() if (m := _LINE.match(line))}
    found = []
    for k in range(pages):
        lines = []
        for line in first.splitlines():
            m = _LINE.match(line)
            start = float(m[2]) if m else 0.0
            lines.append(b"%b %r" % (m[1], start + (ends[m[1]] - start) * k / (pages - 1)) if m and m[1] in ends else line)
        found.append(page(b"\n".join(lines) + b"\n", seconds * k / (pages - 1)))
    return found


def said(found: EngineDiagnosis) -> str:
    return found.verdict.summary


@pytest.mark.parametrize(("name", "seconds"), RUNS)
def test_two_pages_are_too_few_to_blame(name: str, seconds: float) -> None:
    """Rates, no persistence: insufficient, nobody named, and both engines read."""
    first, second = pair(name)
    found = diagnose(window([page(first, 0.0), page(second, seconds)]))
    assert (found.engine.kind, len(found.ranks)) == ("vllm", 2)
    assert found.verdict.klass is Class.INSUFFICIENT
    assert found.verdict.ranks == ()


def test_the_slowed_dense_rank_is_named() -> None:
    """Rank 1 was slowed by 60 ms: 84.0 ms against 13.1 ms at 6 requests each. Its pages show that the ranks have no common clock."""
    found = diagnose(window(evenly("slowdense-", 18.0)))
    assert found.engine.clock is Clock.NONE
    assert (found.verdict.klass, found.verdict.cause, found.verdict.ranks) == (Class.SINGLE_POINT, "slow_rank", (1,))


@pytest.mark.parametrize("clock", [None, Clock.FORWARD])
def test_the_slowed_rank_of_a_lockstep_is_nobody(clock: Clock | None) -> None:
    """Rank 1 was slowed by 60 ms, and both show 91 ms: no rank is named, told or not that they share a clock."""
    found = diagnose(window(evenly("slowmoe-", 18.0), clock))
    assert found.verdict.klass is Class.INSUFFICIENT
    assert found.verdict.ranks == ()
    assert "metrics" in said(found)


@pytest.mark.parametrize("clock", [None, Clock.FORWARD])
def test_a_skewed_lockstep_blames_no_card(clock: Clock | None) -> None:
    """12 requests against 2 on healthy ranks: no single point, whatever is known of the clock."""
    found = diagnose(window(evenly("", 10.0), clock))
    assert found.verdict.klass is Class.INSUFFICIENT
    assert found.verdict.ranks == ()


def test_counts_that_drifted_apart_blame_no_card() -> None:
    """27/5/0/0 after 8/8/8/8, at full length: the idle ones are neither slow nor dead; without step times nothing is lost that shows."""
    first, second = ((CASES / f"03-vllm48808-dp4-request-skew-t{i}.txt").read_bytes() for i in (0, 1))
    for pages in ([page(first, 0.0), page(second, 401.0)], [page(second, 2.0 * k) for k in range(12)]):
        found = diagnose(window(pages))
        assert len(found.ranks) == 4
        assert found.verdict.klass in {Class.INSUFFICIENT, Class.LOAD}
        assert found.verdict.ranks in {(), (0,)}


def test_requests_that_wait_on_an_empty_cache_are_a_stopped_engine() -> None:
    """The livelock's gauges alone do not say whether tokens come; beside the token counter that every real page has, they do."""
    body = (CASES / "12-vllm-metal479-livelock.txt").read_bytes()
    assert diagnose(window([page(body, 2.0 * k) for k in range(12)])).verdict.klass is Class.INSUFFICIENT
    body += b'vllm:generation_tokens_total{engine="0",model_name="mlx-community/Qwen3.6-27B-5bit"} 5000.0\n'
    found = diagnose(window([page(body, 2.0 * k) for k in range(12)])).verdict
    assert (found.klass, found.cause, found.ranks) == (Class.SINGLE_POINT, "stuck_rank", (0,))


SEVERITY = 2.0
"""100 ms of a rank's host in steps of 40 ms: with experts the group's rise is twice what more load could explain."""


@pytest.fixture(scope="module")
def played() -> dict[str, tuple[Window, Window]]:
    experts = ClusterConfig(ranks=4, vllm=VllmFlags(moe=True), seed=5)
    configs = {"experts": experts, "dense": msgspec.structs.replace(experts, vllm=VllmFlags(moe=False), model_name=NAME)}
    plays = [Play(config, "slow_rank", 1, SEVERITY, healthy=20, faulty=18, settling=4) for config in configs.values()]
    return dict(zip(configs, play(plays), strict=True))


@pytest.mark.cluster
def test_a_slow_rank_without_experts_is_named(played) -> None:
    """Dense engines step for themselves: healthy (insufficient while the clock does not show), then the rank is named."""
    before, after = played["dense"]
    assert diagnose(before).engine.kind == "vllm"
    assert diagnose(before).verdict.klass in {Class.HEALTHY, Class.INSUFFICIENT}
    verdict = diagnose(after, before).verdict
    assert (verdict.klass, verdict.cause, verdict.ranks) == (Class.SINGLE_POINT, "slow_rank", (1,))


@pytest.mark.cluster
def test_a_slow_rank_with_experts_is_everybodys(played) -> None:
    """In lockstep the slowdown is seen against the past, and nobody is named."""
    before, after = played["experts"]
    assert diagnose(before).engine.kind == "vllm"
    assert diagnose(before).verdict.klass is Class.INSUFFICIENT
    verdict = diagnose(after, before).verdict
    assert (verdict.klass, verdict.cause, verdict.ranks) == (Class.INSUFFICIENT, "whole_group_slow", ())


@pytest.mark.cluster
def test_answers_that_the_front_end_keeps_are_outside_the_ranks() -> None:
    """A second on every answer, in a lockstep whose own times of requests are as ever: no rank is named. Requests stay 8 s, so the window
    must be twice as long; by itself, as the others' steps must not be disturbed."""
    kept = Play(ClusterConfig(ranks=2, vllm=VllmFlags(), seed=5), "outside_the_ranks", 0, 1.0, healthy=6, faulty=30, settling=5)
    ((_, after),) = play([kept])
    verdict = diagnose(after).verdict
    assert (verdict.klass, verdict.cause, verdict.ranks) == (Class.OUTSIDE, "outside_the_ranks", ())
