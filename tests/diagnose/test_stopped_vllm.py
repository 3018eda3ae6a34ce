"""vLLM ranks that stand still: stopped, idle, or in a long prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from collector import signals
from collector.model import Clock
from diagnose.engine import diagnose
from diagnose.model import Class
from tests.diagnose.dense import Dense, verdict


def test_a_stopped_dense_rank_is_named() -> None:
    """No token and no movement of its KV usage for 18 s with requests running, while the others go on."""
    found = verdict(Dense(stopped={1: 18.0}, seconds=40))
    assert (found.klass, found.cause, found.ranks) == (Class.SINGLE_POINT, "stuck_rank", (1,))


def test_a_stopped_lockstep_names_nobody() -> None:
    """All stand, one of them is why."""
    found = verdict(Dense(clock=Clock.FORWARD, stopped=dict.fromkeys(range(4), 18.0), seconds=40))
    assert (found.klass, found.cause, found.ranks) == (Class.SINGLE_POINT, "stuck_rank", ())


def test_the_state_of_a_process_tells_who_stopped_a_lockstep() -> None:
    """All four stand; the kernel shows rank 2's process stopped: it is named, with the state, and nothing more would tell."""
    plant = Dense(stopped=dict.fromkeys(range(4), 18.0), clock=Clock.FORWARD, seconds=40)
    window = plant.window()
    state = np.zeros((4, 40))
    state[2, -18:] = 1.0
    found = diagnose(replace(window, values={**window.values, signals.PROCESS_STOPPED: state})).verdict
    assert (found.cause, found.ranks) == ("stuck_rank", (2,))
    assert "the whole group has put out no token" in found.summary
    assert "process of rank 2 is stopped by a signal (state T)" in found.summary
    assert found.evidence[0].signal == signals.PROCESS_STOPPED


def test_a_rank_that_computes_a_long_prompt_has_not_stopped() -> None:
    """No token for 18 s, but its KV usage grows."""
    window = Dense(stopped={1: 18.0}, seconds=40).window()
    usage = window.values[signals.KV_USAGE].copy()
    usage[1] += np.arange(40) * 1e-3
    found = diagnose(replace(window, values={**window.values, signals.KV_USAGE: usage})).verdict
    assert found.cause != "stuck_rank"


def test_an_idle_rank_has_not_stopped() -> None:
    """Nothing running, every counter flat: on vLLM an idle rank looks dead, and is not called so."""
    for clock in (Clock.FORWARD, Clock.NONE):
        found = verdict(Dense(clock=clock, running=(8.0, 0.0, 8.0, 8.0), prompts=(2.0, 0.0, 2.0, 2.0), seconds=40))
        assert found.cause is None
        assert found.ranks == ()
