"""Ranks without a common clock, and ranks whose clock shows no wait: windows made by arithmetic, with the truth known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import signals
from collector.model import Clock, Engine, Window
from diagnose import independent
from diagnose.confidence import calibration
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData


@dataclass(frozen=True)
class Dense:
    """vLLM engines: a step of rank r takes (base + per_token x tokens + per_kv x KV tokens) x slow[r]; with a clock, the longest of all."""

    ranks: int = 4
    seconds: int = 20
    running: Sequence[float] = (8.0,) * 64
    length: Sequence[float] = (4000.0,) * 64  # KV tokens of a request
    prompts: Sequence[float] = (2.0,) * 64  # prompt tokens per step
    answers: Sequence[float] = (100.0,) * 64  # tokens of an answer: so many steps lie between two requests' beginnings
    slow: Mapping[int, float] = field(default_factory=dict)
    stopped: Mapping[int, float] = field(default_factory=dict)  # seconds ago
    clock: Clock = Clock.NONE
    base: float = 0.010
    per_token: float = 0.0001
    per_kv: float = 1e-8
    per_begun: float = 0.0  # of a step in which a request begins
    queued: float = 0.0  # seconds that a request queues
    kept: float = 0.0  # seconds that its first token takes outside the ranks

    def window(self) -> Window:
        rng = np.random.default_rng(3)
        rows, columns = self.ranks, self.seconds
        running, length, prompts, answers = (np.array(x[:rows]) for x in (self.running, self.length, self.prompts, self.answers))
        tokens, kv, begun = running + prompts, running * length, running / answers
        steps = (self.base + self.per_token * tokens + self.per_kv * kv + self.per_begun * np.minimum(begun, 1.0)) * np.array(
            [self.slow.get(r, 1.0) for r in range(rows)]
        )
        if self.clock is Clock.FORWARD:
            steps = np.full(rows, steps.max())
        noisy = steps[:, None] * (1 + 0.01 * rng.standard_normal((rows, columns)))
        left = np.array([self.stopped.get(r, 0.0) for r in range(rows)])
        going = (np.arange(columns)[None, :] < columns - left[:, None]) & (running > 0)[:, None]
        rate = np.where(going, 1.0 / noisy, 0.0)
        kv_usage = np.cumsum(np.where(going, 1e-6, 0.0), axis=1) + (kv / 1e6)[:, None]
        flat = np.ones((1, columns))
        values = {
            signals.RUNNING: running[:, None] * flat,
            signals.WAITING: np.zeros((rows, columns)),
            signals.KV_USAGE: kv_usage,
            signals.RESIDENT_TOKENS: kv_usage * 1e6,
            signals.PREFILL_TOKENS: prompts[:, None] * rate,
            signals.CACHED_TOKENS: np.zeros((rows, columns)),
            signals.ATTENTION_TOKENS: tokens[:, None] * rate,
            signals.RETRACTED: np.zeros((rows, columns)),
            signals.DECODE_TIME: np.where(going, 1.0, 0.0),
            signals.DECODE_STEPS: rate,
            signals.STEPS_ACTIVE: rate,
            signals.STEPS_IDLE: np.zeros((rows, columns)),
            signals.ACCEPT_LENGTH: np.ones((rows, columns)),
            signals.FINISHED_REQUESTS: begun[:, None] * rate,
            signals.REQUEST_QUEUE_TIME: self.queued * begun[:, None] * rate,
            signals.REQUEST_PREFILL_TIME: 2.0 * begun[:, None] * np.where(going, 1.0, 0.0),  # two steps
        }
        first = (begun[:, None] * rate).sum(axis=0, keepdims=True)
        values[signals.FIRST_TOKENS] = first
        values[signals.FIRST_TOKEN_TIME] = first * (self.queued + self.kept) + 3.0 * begun.sum() * flat  # three steps
        if self.clock is Clock.UNKNOWN:
            del values[signals.STEPS_IDLE]
        edges = 1.8e9 + np.arange(columns + 1.0)
        return Window(Engine("http://e:8000", "vllm", clock=self.clock), edges, tuple(range(rows)), values, columns)


def verdict(plant: Dense, past: Dense | None = None):
    return diagnose(plant.window(), past.window() if past else None).verdict


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


def test_without_a_known_clock_nothing_is_claimed() -> None:
    """A rank that is apart is not called healthy, nor slow: whether the ranks wait for each other decides, and how to say it is said."""
    apart = verdict(Dense(clock=Clock.UNKNOWN, slow={2: 1.25}), Dense(clock=Clock.UNKNOWN))
    level = verdict(Dense(clock=Clock.UNKNOWN))
    for found in (apart, level):
        assert (found.klass, found.ranks, found.cause) == (Class.INSUFFICIENT, (), None)
        assert "--clock" in found.summary
    assert verdict(Dense(clock=Clock.UNKNOWN), Dense(clock=Clock.UNKNOWN)).klass is Class.HEALTHY


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
