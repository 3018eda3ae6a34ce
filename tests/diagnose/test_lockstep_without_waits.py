"""A lockstep whose waits nobody measures: the group against its past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector.model import Clock
from diagnose.model import Class
from tests.diagnose.dense import Dense, verdict


def test_in_a_lockstep_without_waits_nobody_is_named() -> None:
    """All steps are long alike: without a past nothing is known; with one the group is slow, and what would tell is said."""
    slow = Dense(clock=Clock.FORWARD, slow={2: 1.5})
    alone = verdict(slow)
    assert (alone.klass, alone.ranks) == (Class.INSUFFICIENT, ())
    assert "vLLM's metrics cannot say which" in alone.summary
    assert any("procfs" in m.enable and "slowrank probe" in m.enable for m in alone.missing)
    compared = verdict(slow, Dense(clock=Clock.FORWARD))
    assert (compared.klass, compared.cause, compared.ranks) == (Class.INSUFFICIENT, "whole_group_slow", ())
    assert compared.share is not None
    assert compared.share.mid == pytest.approx(1 / 3, abs=0.02)


def test_a_lockstep_as_fast_as_its_past_is_healthy_with_little_confidence() -> None:
    """A slow rank would have shown in everybody's steps; not if there is much less to do than in the past."""
    now, past = Dense(clock=Clock.FORWARD), Dense(clock=Clock.FORWARD)
    found = verdict(now, past)
    assert found.klass is Class.HEALTHY
    assert found.confidence < 0.6
    idle = replace(now, running=(4.0,) * 64, prompts=(1.0,) * 64, slow={2: 1.05})
    assert verdict(idle, past).klass is Class.INSUFFICIENT


def test_steps_that_grow_with_the_load_are_not_a_slow_group() -> None:
    """Twice the requests at a cost of tokens alone: the past's step time allows twice as long."""
    more = Dense(clock=Clock.FORWARD, running=(24.0,) * 64, per_token=0.001)
    assert verdict(more, Dense(clock=Clock.FORWARD, per_token=0.001)).cause is None
