"""The front end of vLLM: what a first token waits for outside the ranks."""

from __future__ import annotations

import pytest

from collector import signals
from collector.model import Clock
from diagnose.engine import diagnose
from diagnose.model import Finding, Healthy, NoData
from tests.diagnose.dense import Dense


def outside(plant: Dense, *without: str):
    said = {o.rule: o.outcome for o in diagnose(plant.window().without(*without)).outcomes}
    return said["outside_the_ranks"]


@pytest.mark.parametrize("clock", [Clock.NONE, Clock.FORWARD])
def test_a_first_token_that_is_kept_outside_is_the_front_ends_doing(clock: Clock) -> None:
    """vLLM tells of each request how long it queued and was computed: a second beyond that and four steps was not the ranks'."""
    found = outside(Dense(kept=1.0, queued=0.02, clock=clock, seconds=30))
    assert isinstance(found, Finding)
    (seen,) = found.evidence
    assert seen.observed - (seen.expected or 0.0) == pytest.approx(1.0, abs=0.05)  # three of the steps were there
    assert isinstance(outside(Dense(queued=0.02, clock=clock, seconds=30)), Healthy)


def test_a_queue_on_the_ranks_is_not_outside() -> None:
    """Requests that waited two seconds for their first step waited on the rank."""
    assert isinstance(outside(Dense(queued=2.0, seconds=30)), Healthy)


def test_requests_that_outlast_the_window_do_not_speak_for_it() -> None:
    """Answers of 4,000 tokens stay 45 s: what ends in 30 s began before, so nothing is said of the front end, and why."""
    found = outside(Dense(kept=1.0, answers=(4000.0,) * 64, seconds=30))
    assert isinstance(found, NoData)
    assert "a longer window would tell" in found.why


@pytest.mark.parametrize(
    "name", [signals.REQUEST_QUEUE_TIME, signals.REQUEST_PREFILL_TIME, signals.FINISHED_REQUESTS, signals.FIRST_TOKENS]
)
def test_without_one_of_vllms_request_times_nothing_is_said_of_the_front_end(name: str) -> None:
    """And the one that is missing is named, not SGLang's."""
    found = outside(Dense(kept=1.0, seconds=30), name)
    assert isinstance(found, NoData)
    assert found.missing == (name,)
