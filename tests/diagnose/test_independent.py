"""Ranks without a common clock: each one's own step time, given its load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import signals
from collector.model import Clock
from diagnose import independent
from diagnose.confidence import calibration
from diagnose.engine import diagnose
from diagnose.model import Class
from tests.diagnose.dense import Dense, verdict


def test_a_slow_dense_rank_is_named_though_counts_are_equal() -> None:
    """Rank 2 needs 1.5 times as long: 1 - 1/1.5 of its own step time is above what equal load allows."""
    found = verdict(Dense(slow={2: 1.5}))
    assert (found.klass, found.cause, found.ranks) == (Class.SINGLE_POINT, "slow_rank", (2,))
    assert found.share is not None
    assert found.share.mid == pytest.approx(1 / 3, abs=0.02)
    assert "vllm:" in found.evidence[0].promql


def test_of_two_dense_ranks_the_slow_one_is_named() -> None:
    """Nobody is faster than a healthy card: two suffice to name the slower, with less confidence than four."""
    two, four = verdict(Dense(ranks=2, slow={1: 3.0})), verdict(Dense(slow={1: 3.0}))
    assert (two.cause, two.ranks) == ("slow_rank", (1,))
    assert two.confidence < four.confidence


def test_level_dense_ranks_are_healthy() -> None:
    """Each rank's own step time was looked at; what vLLM never shows lowers the confidence and does not forbid the verdict."""
    found = verdict(Dense())
    assert found.klass is Class.HEALTHY
    assert 0.5 < found.confidence / calibration().healthy < 0.8
    assert verdict(Dense(), Dense()).confidence > found.confidence


@pytest.mark.parametrize("ratio", [1.3, 2.0, 6.0])
def test_longer_steps_under_more_load_are_no_slow_card(ratio: float) -> None:
    """Requests, contexts or prompts of one rank are `ratio` times its peers', at coefficients where that shows: nobody is called slow."""
    busy = tuple(ratio if r == 1 else 1.0 for r in range(64))
    for name in ("running", "length", "prompts"):
        levels: Any = {name: tuple(x * y for x, y in zip(getattr(Dense(), name), busy, strict=True))}
        assert verdict(replace(Dense(per_kv=1e-6), **levels)).cause != "slow_rank", name


def test_short_answers_that_begin_often_are_no_slow_card() -> None:
    """Steps in which a request begins cost 12 ms more; on rank 1 a fifth are such steps, on the others a fiftieth. Its tokens, prompts and
    KV are fewer, and its steps longer for what begins in them."""
    plant = Dense(
        running=(8.0, 2.0, 8.0, 8.0),
        answers=(400.0, 10.0, 400.0, 400.0),
        prompts=(2.0, 2.0, 2.0, 2.0),
        per_begun=0.012,
        seconds=60,
    )
    found = independent.pace(plant.window())
    assert found is not None
    assert found.longer[1] > 0.1
    assert found.slower[1] < 0
    alone = independent.pace(plant.window().without(signals.FINISHED_REQUESTS))
    assert alone is not None
    assert alone.slower[1] > 0.1  # without that count it would have looked slow


def test_a_slow_card_is_not_excused_by_chance() -> None:
    """As many requests begin on it as on its peers: what few beginnings differ by is not counted as load."""
    window = Dense(slow={1: 1.2}, answers=(100.0, 90.0, 105.0, 100.0)).window()
    found = independent.pace(window)
    assert found is not None
    assert found.slower[1] == pytest.approx(1 - 1 / 1.2, abs=0.02)


def test_more_requests_and_longer_contexts_are_told_apart_on_dense_ranks() -> None:
    """Four times the requests, or four times the length, lengthen that rank's own steps: load, and which of the two."""
    many = verdict(Dense(per_kv=1e-6, running=(8.0, 32.0, 8.0, 8.0)))
    long = verdict(Dense(per_kv=1e-6, length=(4000.0, 16000.0, 4000.0, 4000.0)))
    assert (many.klass, many.cause, many.ranks) == (Class.LOAD, "request_count_skew", (1,))
    assert (long.klass, long.cause, long.ranks) == (Class.LOAD, "context_length_skew", (1,))


@given(
    running=st.lists(st.floats(1, 64), min_size=4, max_size=4),
    length=st.lists(st.floats(100, 1e5), min_size=4, max_size=4),
    prompts=st.lists(st.floats(0, 500), min_size=4, max_size=4),
    costs=st.tuples(st.floats(0, 0.1), st.floats(0, 1e-3), st.floats(0, 1e-5)),
)
def test_equal_cards_are_never_above_their_bound(running, length, prompts, costs) -> None:
    """Whatever the loads and whatever a token, a KV token and a step cost: equal cards stay below the bound, within the noise of 1 %
    and the spare of a twentieth of the tokens."""
    base, per_token, per_kv = costs
    plant = Dense(running=running, length=length, prompts=prompts, base=base + 1e-3, per_token=per_token, per_kv=per_kv)
    found = independent.pace(plant.window())
    assert found is not None
    assert np.nanmax(found.slower) < 0.02


def test_without_a_known_clock_nothing_is_claimed() -> None:
    """A rank that is apart is not called healthy, nor slow: whether the ranks wait for each other decides, and how to say it is said."""
    apart = verdict(Dense(clock=Clock.UNKNOWN, slow={2: 1.25}), Dense(clock=Clock.UNKNOWN))
    level = verdict(Dense(clock=Clock.UNKNOWN))
    for found in (apart, level):
        assert (found.klass, found.ranks, found.cause) == (Class.INSUFFICIENT, (), None)
        assert "--clock" in found.summary
    assert verdict(Dense(clock=Clock.UNKNOWN), Dense(clock=Clock.UNKNOWN)).klass is Class.HEALTHY


@pytest.mark.parametrize("signal", sorted(signals.CATALOGUE))
@pytest.mark.parametrize(
    "plant",
    [Dense(), Dense(slow={2: 1.5}), Dense(stopped={1: 18.0}, seconds=40), Dense(clock=Clock.FORWARD, slow={2: 1.5})],
    ids=["healthy", "slow", "stopped", "lockstep"],
)
def test_a_missing_signal_never_makes_another_class_on_vllm(plant: Dense, signal: str) -> None:
    """As for SGLang: the verdict weakens, it does not turn."""
    past = replace(Dense(), clock=plant.clock).window()
    whole = diagnose(plant.window(), past).verdict
    part = diagnose(plant.window().without(signal), past.without(signal)).verdict
    assert part.klass in (whole.klass, Class.INSUFFICIENT)
    if part.klass is whole.klass:
        assert part.confidence <= whole.confidence + 0.02
        assert set(part.ranks) <= set(whole.ranks)
