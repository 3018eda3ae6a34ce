"""What only a window of SGLang tells: counters that stand still, work without waits, ranks that are missing."""

from __future__ import annotations

import numpy as np
import pytest

from collector import signals
from collector.engines import sglang, sglang_loads
from collector.engines.sglang_metrics import STAGES
from tests.collector.sglang_pages import made


def test_dp_attention_counters_that_stand_still_while_tokens_flow_are_dropped() -> None:
    """The env is off: the family exists and stays 0. Its zeros must not read as idle; scheduler work goes with the sync wait."""
    zero, busy = [[0.0] * 4] * 2, [[300.0] * 4, [0.0] * 4]
    dead = (signals.STEPS_ACTIVE, signals.STEPS_IDLE, signals.ATTENTION_PAIRS, signals.ATTENTION_TOKENS, signals.SYNC_WAIT)
    for progress in ("_tokens", signals.DECODE_STEPS, signals.PREFILL_TOKENS):
        window = sglang.adjust(made({**dict.fromkeys(dead, zero), progress: busy, STAGES: [[0.5] * 4] * 2, signals.RECV_WAIT: busy}))
        assert not set(dead) & set(window.values)
        assert signals.SCHEDULER_WORK not in window.values
        assert signals.RECV_WAIT in window.values
        assert "SGLANG_ENABLE_METRICS_DP_ATTENTION=1" in str(window.problems[0])


def test_dp_attention_counters_of_an_idle_engine_stay() -> None:
    """Nothing moves at all: zero steps is the truth, and nothing is said about the env."""
    window = sglang.adjust(made({signals.STEPS_ACTIVE: [[0.0] * 4] * 2, signals.STEPS_IDLE: [[0.0] * 4] * 2, "_tokens": [[0.0] * 4] * 2}))
    assert window.has(signals.STEPS_ACTIVE)
    assert window.problems == ()


def test_the_env_missing_on_one_node_costs_its_ranks_only() -> None:
    """Every rank takes part in every step, so a rank without steps beside one that has them does not record them."""
    window = sglang.adjust(made({signals.STEPS_ACTIVE: [[50.0] * 4, [0.0] * 4], signals.STEPS_IDLE: [[0.0] * 4] * 2}))
    assert np.isnan(window.get(signals.STEPS_ACTIVE)[1]).all()
    assert (window.get(signals.STEPS_ACTIVE)[0] == 50).all()
    assert "on rank 1" in str(window.problems[0])


def test_a_forward_time_that_stands_still_while_steps_go_on_is_absent() -> None:
    """The device timer is off; 0 s of forwards would be a wrong fact."""
    window = sglang.adjust(made({signals.STEPS_ACTIVE: [[50.0] * 4] * 2, signals.FORWARD_TIME: [[0.0] * 4] * 2}))
    assert signals.FORWARD_TIME not in window.values
    assert "SGLANG_ENABLE_METRICS_DEVICE_TIMER=1" in str(window.problems[0])


def test_scheduler_work_is_never_negative_and_right_in_sum() -> None:
    """Stage seconds are flushed about once a second, the sync wait at once: single intervals may say more wait than stages."""
    stages = [[0.0, 0.6, 0.0, 0.6], [0.3] * 4]
    sync = [[0.2] * 4, [np.nan, 0.1, 0.1, 0.1]]
    window = sglang.adjust(made({STAGES: stages, signals.SYNC_WAIT: sync}))
    work = window.get(signals.SCHEDULER_WORK)
    assert (work[np.isfinite(work)] >= 0).all()
    assert work[0].sum() == pytest.approx(1.2 - 0.8)
    assert np.isnan(work[1, 0])
    assert work[1, 1:] == pytest.approx(0.2)


def test_ranks_whose_node_is_not_scraped_are_named() -> None:
    """Load snapshots know all ranks, a node's /metrics only its own."""
    nan = [np.nan] * 4
    window = sglang.adjust(made({signals.RUNNING: [[1.0] * 4] * 2, STAGES: [[0.5] * 4, nan], signals.SYNC_WAIT: [[0.1] * 4, nan]}))
    assert "no counters of rank 1" in str(window.problems[-1])


def test_frozen_counters_are_told_per_rank() -> None:
    """The signals dropped on rank 1 are named as there but standing still; those of rank 0 and the helpers are not."""
    moving, still = [1.0] * 4, [0.0] * 4
    values = {signals.STEPS_ACTIVE: [moving, still], signals.STEPS_IDLE: [still, still], signals.SYNC_WAIT: [moving, still]}
    adjusted = sglang.adjust(made(values | {signals.PREFILL_TOKENS: [moving, moving]}))
    assert adjusted.frozen == {signals.STEPS_ACTIVE: (1,), signals.STEPS_IDLE: (1,), signals.SYNC_WAIT: (1,)}
    assert sglang.adjust(made({signals.PREFILL_TOKENS: [moving, moving]})).frozen == {}


def test_accept_length_is_the_windows_own() -> None:
    """Tokens over rows of the window's decode steps replace the scheduler's life-long mean; a rank that ran none is unknown."""
    rows, tokens = [[8.0] * 4, [0.0] * 4], [[20.0] * 4, [0.0] * 4]
    life = {signals.ACCEPT_LENGTH: [[1.9] * 4, [1.9] * 4]}
    found = sglang.adjust(made(life | {sglang_loads.ROWS: rows, sglang_loads.TOKENS: tokens})).mean(signals.ACCEPT_LENGTH)
    assert found[0] == pytest.approx(2.5)
    assert np.isnan(found[1])
    assert list(sglang.adjust(made(life)).mean(signals.ACCEPT_LENGTH)) == pytest.approx([1.9, 1.9])
