"""Prompts of ranks without a common clock: those that make steps long, and those that come of long steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collector import signals
from collector.model import Window
from diagnose.engine import diagnose
from diagnose.model import Class
from tests.diagnose.dense import Dense, verdict


def test_a_slow_rank_that_gets_its_prompts_by_the_second_is_no_prefill_skew() -> None:
    """All ranks get 200 prompt tokens a second. Rank 1 needs 15 times as long for a step, so 15 times as many fall into each: the prompts
    do not explain its steps, they come of them."""
    rate, quick, slow = 200.0, Dense(prompts=(0.0,) * 4), 15.0
    base = quick.base + quick.per_token * 8 + quick.per_kv * 32000
    # S = slow (base + per_token rate S)
    steps = [slow_r * base / (1 - slow_r * quick.per_token * rate) for slow_r in (1.0, slow, 1.0, 1.0)]
    found = verdict(Dense(prompts=[rate * s for s in steps], slow={1: slow}))
    assert (found.klass, found.cause, found.ranks) == (Class.SINGLE_POINT, "slow_rank", (1,))
    assert found.share is not None
    assert found.share.mid == pytest.approx(1 - steps[0] / steps[1], abs=0.02)


def test_prompts_that_come_faster_to_one_rank_are_load() -> None:
    """Rank 1 gets 5,000 prompt tokens a second its peers 200, on equal cards: its steps are longer by what they take. Load."""
    rates, cards = (200.0, 5000.0, 200.0, 200.0), Dense()
    base = cards.base + cards.per_token * 8 + cards.per_kv * 32000
    steps = [base / (1 - cards.per_token * rate) for rate in rates]
    found = verdict(Dense(prompts=[rate * s for rate, s in zip(rates, steps, strict=True)]))
    assert (found.klass, found.cause, found.ranks) == (Class.LOAD, "long_prefill", (1,))


def prompting(counted: float, cached: float, per_second: float) -> Window:
    """Rank 1 takes 40 times as long per step as its load in the counters allows, counts these prompt tokens, and its KV grows."""
    window = Dense(slow={1: 40.0}, seconds=20).window()
    values = {name: found.copy() for name, found in window.values.items()}
    values[signals.PREFILL_TOKENS][1] = counted
    values[signals.CACHED_TOKENS][:] = 2000.0
    values[signals.CACHED_TOKENS][1] = cached
    values[signals.ATTENTION_TOKENS][1] = counted + 8.0 * values[signals.DECODE_STEPS][1]
    values[signals.RESIDENT_TOKENS][1] += per_second * np.arange(20.0)
    return replace(window, values=values)


def test_a_long_prompt_under_way_is_no_slow_card() -> None:
    """vLLM counts a prompt when it is done: none is counted, and the KV grows by 2,000 tokens a second. Load, and not a card."""
    found = diagnose(prompting(0.0, 0.0, 2000.0)).verdict
    assert (found.klass, found.cause, found.ranks) == (Class.LOAD, "long_prefill", (1,))


def test_without_kv_tokens_a_long_prompt_is_not_excluded() -> None:
    """Then neither it nor the card is blamed."""
    found = diagnose(prompting(0.0, 0.0, 2000.0).without(signals.RESIDENT_TOKENS)).verdict
    assert (found.klass, found.ranks) == (Class.INSUFFICIENT, ())
    assert signals.RESIDENT_TOKENS in {missing.signal for missing in found.missing}


def test_prompts_that_peers_find_cached_are_that_ranks_cache() -> None:
    """4,000 tokens a second computed and none cached, where the peers compute 170 and find 2,000."""
    found = diagnose(prompting(4000.0, 0.0, 0.0)).verdict
    assert (found.klass, found.cause, found.ranks) == (Class.LOAD, "prefix_cache_skew", (1,))


def test_a_rank_with_the_prompts_of_its_peers_is_not_excused_by_its_kv() -> None:
    """KV that rises while prompts are counted is theirs: the rank is slow."""
    found = diagnose(prompting(170.0 / 40.0, 50.0, 0.0)).verdict
    assert (found.cause, found.ranks) == ("slow_rank", (1,))
