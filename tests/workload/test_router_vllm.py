"""Requests go where vLLM 0.32's front ends would send them, on what its coordinator lets them know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workload.router_vllm import Coordinator, EngineLoad, ScoreRouter


def test_ties_go_round():
    """Idle engines get one request each, in turn, wherever the scan began."""
    assert [ScoreRouter(4).choose() for _ in range(1)] == [0]
    router = ScoreRouter(4)
    assert [router.choose() for _ in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_equal_engines_are_dealt_in_turn_though_all_have_finished():
    """Requests that end at once leave all scores equal: the start of the scan still moves on."""
    router = ScoreRouter(3)
    chosen = []
    for _ in range(6):
        router.update([EngineLoad()] * 3)
        chosen.append(router.choose())
        router.finished(chosen[-1])
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_front_ends_begin_at_different_engines():
    """Two front ends of four engines begin at 0 and 2: two first requests do not meet."""
    assert [ScoreRouter(4, 2, index).choose() for index in range(2)] == [0, 2]


def test_the_score_counts_requests_and_charges_for_waiting_only_above_half_a_cache():
    """waiting + running, and for each one waiting 6 more per unit of KV usage above 0.5; own unfinished times front ends at least."""
    router = ScoreRouter(4, front_ends=2)
    router.update([EngineLoad(3, 5, 0.5), EngineLoad(3, 5, 0.9), EngineLoad(0, 8, 1.0), EngineLoad(0, 0, 0.0)])
    assert [router.score(e) for e in range(4)] == pytest.approx([8.0, 8.0 + 3 * 6 * 0.4, 8.0, 0.0])
    for _ in range(5):
        router.choose(pinned=3)
    assert router.score(3) == 10.0  # 2 front ends x 5 of its own, though the engine is said to be idle


def test_a_choice_counts_for_all_front_ends_until_the_next_message():
    """One request counts as one from every front end; the message wipes that out, the own unfinished ones stay."""
    router = ScoreRouter(2, front_ends=4)
    assert router.choose() == 0
    assert router.score(0) == 4.0
    router.update([EngineLoad(0, 1), EngineLoad(0, 9)])
    assert router.score(0) == 4.0
    router.finished(0)
    assert router.score(0) == 1.0


def test_it_knows_no_lengths_and_no_speed():
    """Equal counts are equal scores, a full cache costs an engine nothing while nobody waits; only once it has one waiting does it."""
    router = ScoreRouter(2)
    router.update([EngineLoad(0, 4, 1.0), EngineLoad(0, 4, 0.1)])
    assert [router.score(e) for e in range(2)] == [4.0, 4.0]
    assert [router.choose() for _ in range(2)] == [0, 1]
    assert [router.score(e) for e in range(2)] == [5.0 + 6 * 0.5, 5.0]  # the request just sent counts as waiting there


def test_stale_numbers_and_many_front_ends_overload_one_engine():
    """16 front ends with a request each all see the same gap and fill it 16 times over; one front end with 16 levels the engines."""
    seen = [EngineLoad(0, running) for running in (3, 3, 2, 3)]
    landed = [load.running for load in seen]
    for index in range(16):
        router = ScoreRouter(4, 16, index)
        router.update(seen)
        landed[router.choose()] += 1
    assert landed == [3, 3, 18, 3]

    alone, level = ScoreRouter(4), [load.running for load in seen]
    alone.update(seen)
    for _ in range(16):
        level[alone.choose()] += 1
    assert sorted(level) == [6, 7, 7, 7]


def test_a_pin_wins_and_must_exist():
    """The header's engine gets it, and its request counts as unfinished; a number out of range is named."""
    router = ScoreRouter(2)
    assert router.choose(pinned=1) == 1
    assert router.unfinished == [0, 1]
    with pytest.raises(ValueError, match="X-data-parallel-rank 2: there are engines 0 to 1"):
        router.choose(pinned=2)


def test_the_coordinator_publishes_changes_every_100_ms_and_silence_every_5_s():
    """A change is told at once when the last message is 100 ms old, else then; without any, 5 s after the last message."""
    coordinator = Coordinator(2, lockstep=False)
    busy = EngineLoad(1, 2, 0.3)
    assert coordinator.publish(0.0) == [EngineLoad(), EngineLoad()]
    coordinator.report(0.01, 1, busy)
    assert coordinator.publish(0.099) is None
    assert coordinator.publish(0.1) == [EngineLoad(), busy]
    coordinator.report(0.15, 1, busy)  # the same again
    assert coordinator.publish(5.0) is None
    assert coordinator.publish(5.1) == [EngineLoad(), busy]
    coordinator.report(6.0, 0, busy)
    assert coordinator.publish(6.0) == [busy, busy]


def test_lockstep_engines_are_gathered_for_50_ms():
    """All ranks' numbers of a step come together: a change waits at least that long, even after a long silence."""
    coordinator = Coordinator(2, lockstep=True)
    coordinator.publish(0.0)
    coordinator.report(1.0, 0, EngineLoad(0, 1))
    assert coordinator.publish(1.049) is None
    coordinator.report(1.049, 1, EngineLoad(0, 2))
    assert coordinator.publish(1.051) == [EngineLoad(0, 1), EngineLoad(0, 2)]


@given(
    front_ends=st.integers(1, 8),
    steps=st.lists(
        st.one_of(
            st.just("choose"),
            st.just("finish"),
            st.lists(
                st.builds(EngineLoad, st.integers(0, 99), st.integers(0, 99), st.floats(0, 1)),
                min_size=3,
                max_size=3,
            ),
        ),
        max_size=40,
    ),
)
def test_every_choice_is_an_engine_with_the_lowest_score(front_ends, steps):
    """Whatever the coordinator says: no engine scored lower than the one chosen, and unfinished counts follow the requests."""
    router, live = ScoreRouter(3, front_ends), []
    for step in steps:
        if step == "choose":
            scores = [router.score(e) for e in range(3)]
            live.append(router.choose())
            assert scores[live[-1]] == min(scores)
        elif step == "finish":
            if live:
                router.finished(live.pop())
        else:
            router.update(step)
        assert router.unfinished == [live.count(e) for e in range(3)]
