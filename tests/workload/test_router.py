"""Requests go where SGLang 0.5.23's controller would send them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workload.prefix import PrefixCache, Segment
from workload.router import REFRESH_SECONDS, RankLoad, Router

MS = 0.001
METHODS = ("round_robin", "total_requests", "total_tokens", "follow_bootstrap_room")


def test_round_robin_deals_in_turn():
    """Round robin ignores load and starts again after the last rank."""
    router = Router("round_robin", 3)
    assert [router.choose(1000) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_total_requests_breaks_ties_to_the_lowest_rank():
    """Equal loads fill the ranks from the lowest up: each choice counts as one request until a snapshot says otherwise."""
    router = Router("total_requests", 4)
    assert [router.choose(10) for _ in range(6)] == [0, 1, 2, 3, 0, 1]


def test_total_tokens_counts_the_prompt_that_it_sent():
    """A long prompt keeps its rank out of the next choices, and equal token counts fall back to request counts."""
    router = Router("total_tokens", 4)
    assert [router.choose(tokens) for tokens in (1000, 10, 10, 10, 10, 10)] == [0, 1, 2, 3, 1, 2]


def test_a_pinned_request_goes_where_it_says():
    """A pin wins over the method and changes neither the turn nor the budget."""
    router = Router("round_robin", 4)
    assert [router.choose(1), router.choose(1, pinned=3), router.choose(1)] == [0, 3, 1]
    budget = Router("total_requests", 2)
    assert [budget.choose(1, pinned=0), budget.choose(1)] == [0, 0]


def test_a_new_snapshot_wipes_out_the_increments():
    """What was sent since is forgotten when a rank publishes, seen by it or not: so a burst can pile up on one rank."""
    router = Router("total_requests", 2)
    router.refresh(0.0, [RankLoad(0, 1.0, 0, 0), RankLoad(1, 1.0, 5, 500)])
    assert [router.choose(10) for _ in range(3)] == [0, 0, 0]
    router.refresh(1.0, [RankLoad(0, 1.5, 0, 0), RankLoad(1, 1.5, 1, 100)])
    assert router.choose(10) == 0


def test_a_snapshot_with_the_same_timestamp_changes_nothing():
    """A rank that stopped publishing keeps its last load plus what is sent to it."""
    router = Router("total_requests", 2)
    stale = [RankLoad(0, 1.0, 0, 0), RankLoad(1, 1.0, 2, 0)]
    router.refresh(0.0, stale)
    chosen = []
    for i in range(4):
        router.refresh(float(i + 1), stale)
        chosen.append(router.choose(1))
    assert chosen == [0, 0, 0, 1]


def test_an_older_timestamp_counts_as_a_new_snapshot():
    """Only difference is asked for, not order."""
    router = Router("total_requests", 2)
    router.refresh(0.0, [RankLoad(0, 5.0, 9, 0)])
    router.refresh(1.0, [RankLoad(0, 4.0, 0, 0)])
    assert router.choose(1) == 0


def test_snapshots_are_read_at_most_every_20_ms():
    """Within the throttle a load-aware method decides on what it has; round robin never asks."""
    router = Router("total_tokens", 2)
    assert router.due(0.0)
    router.refresh(0.0, [])
    assert not router.due(REFRESH_SECONDS / 2)
    assert router.due(REFRESH_SECONDS)
    assert not Router("round_robin", 2).due(0.0)


def test_one_long_context_starves_its_rank_under_total_tokens_and_is_unseen_by_total_requests():
    """The reference case: 4 requests everywhere, one of 200K on rank 0. Counts are equal; tokens push all new work away from rank 0."""
    loads = [RankLoad(r, 1.0, 4, 229_376 if r == 0 else 32_768) for r in range(8)]
    by_count, by_tokens = Router("total_requests", 8), Router("total_tokens", 8)
    by_count.refresh(0.0, loads)
    by_tokens.refresh(0.0, loads)
    assert [by_count.choose(8192) for _ in range(8)] == list(range(8))
    assert 0 not in [by_tokens.choose(8192) for _ in range(8 * 20)]


def test_the_budget_of_a_long_context_holds_off_exactly_what_it_holds():
    """(229,376 - 32,768) / 8,192 = 24 short requests go to each of the 7 peers first: 168 in a row, and the next to rank 0."""
    router = Router("total_tokens", 8)
    router.refresh(0.0, [RankLoad(r, 1.0, 4, 229_376 if r == 0 else 32_768) for r in range(8)])
    chosen = [router.choose(8192) for _ in range(169)]
    assert [chosen[:168].count(r) for r in range(8)] == [0, *[24] * 7]
    assert chosen[168] == 0


def burst(router: Router, gap: int, published: int) -> list[int]:
    """Requests per rank of a burst of 20, one every `gap` ms, into 8 idle ranks that have seen none of it and publish every `published`."""
    counts = [0] * 8
    for at in range(0, 20 * gap, gap):
        if router.due(at * MS):
            router.refresh(at * MS, [RankLoad(r, 100.0 + at // published, 0, 0) for r in range(8)])
        counts[router.choose(1000)] += 1
    return counts


@pytest.mark.parametrize("method", ["total_requests", "total_tokens"])
def test_without_the_throttle_a_burst_of_20_lands_on_one_rank(method):
    """Ranks that publish every millisecond wipe out each increment before the next choice; read every 20 ms, the burst spreads."""
    assert burst(Router(method, 8, refresh_seconds=0.0), 1, published=1) == [20] + [0] * 7
    assert burst(Router(method, 8), 1, published=1) == [3, 3, 3, 3, 2, 2, 2, 2]


@pytest.mark.parametrize("method", ["total_requests", "total_tokens"])
def test_skipping_an_unchanged_snapshot_keeps_what_was_dispatched(method):
    """Requests every 25 ms outlast the throttle while no rank publishes: only the skip keeps the second from following the first."""
    assert burst(Router(method, 8, skip_same=False), 25, published=1000) == [20] + [0] * 7
    assert burst(Router(method, 8), 25, published=1000) == [3, 3, 3, 3, 2, 2, 2, 2]


def test_a_long_burst_piles_up_at_every_new_snapshot():
    """Each snapshot that has not seen the last 10 requests forgets them, so both waves begin at rank 0: its twin ranks get less."""
    router = Router("total_requests", 4)
    counts = [0] * 4
    for stamp in (1.0, 2.0):
        router.refresh(stamp, [RankLoad(r, stamp, 0, 0) for r in range(4)])
        for _ in range(10):
            counts[router.choose(1)] += 1
    assert counts == [6, 6, 4, 4]


def test_prefix_hits_make_token_counts_lie():
    """A next turn of 20,100 tokens, 20,000 of them cached on rank 0, counts in full: all the uncached work goes to rank 1."""
    chain = (Segment("conversation", 20_000),)
    caches = [PrefixCache(100_000), PrefixCache(100_000)]
    caches[0].insert(chain)
    router, work = Router("total_tokens", 2), [0, 0]
    for tokens, prefix in ((20_100, chain), (15_000, ()), (4_000, ())):
        rank = router.choose(tokens)
        work[rank] += tokens - caches[rank].match(prefix)
    assert work == [100, 19_000]
    assert [router.budget(r)[1] for r in range(2)] == [20_100, 19_000]  # what the router takes for level


def test_follow_bootstrap_room_ignores_load_and_activity():
    """The room's remainder decides, whatever the rank has to do, and even where it takes no part; probes follow their room too."""
    router = Router("follow_bootstrap_room", 4)
    router.refresh(0.0, [RankLoad(2, 1.0, 500, 900_000)])
    router.set_active(2, active=False)
    assert [router.choose(10, room=room) for room in (6, 10, 2, 7)] == [2, 2, 2, 3]
    assert router.choose_probe(room=6) == 2
    assert router.choose(10, pinned=1, room=6) == 1
    assert not router.due(99.0)
    with pytest.raises(ValueError, match="needs a request's bootstrap room"):
        router.choose(10)


def test_probes_have_a_turn_of_their_own():
    """A health probe moves neither the requests' turn nor any budget."""
    router = Router("round_robin", 3)
    assert [router.choose_probe(), router.choose(1), router.choose_probe(), router.choose(1)] == [0, 0, 1, 1]
    budget = Router("total_requests", 3)
    budget.choose_probe()
    assert [budget.budget(r) for r in range(3)] == [(0, 0)] * 3


def test_round_robin_passes_over_inactive_ranks():
    """It takes the next active one, and says so when there is none."""
    router = Router("round_robin", 3)
    router.set_active(1, active=False)
    assert [router.choose(1) for _ in range(4)] == [0, 2, 0, 2]
    router.set_active(0, active=False)
    router.set_active(2, active=False)
    with pytest.raises(RuntimeError, match="none of the 3 ranks is active"):
        router.choose(1)


def test_load_aware_methods_never_look_at_activity():
    """A rank that is out but has the lowest last load keeps receiving: SGLang does not consult the list."""
    router = Router("total_requests", 2)
    router.refresh(0.0, [RankLoad(1, 1.0, 3, 0)])
    router.set_active(0, active=False)
    assert [router.choose(1) for _ in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("method", METHODS)
def test_a_pin_to_a_rank_that_does_not_exist_is_refused(method):
    """The message names the rank asked for and those there are."""
    with pytest.raises(ValueError, match="routed_dp_rank 4: there are ranks 0 to 3"):
        Router(method, 4).choose(1, pinned=4)


LOADS = st.builds(RankLoad, st.integers(0, 4), st.floats(0, 1e3), st.integers(0, 1000), st.integers(0, 10**6))


@given(
    method=st.sampled_from(METHODS),
    steps=st.lists(st.tuples(st.lists(LOADS, max_size=5), st.integers(1, 200_000), st.integers(0, 2**63)), max_size=30),
    inactive=st.sets(st.integers(0, 4), max_size=4),
    skip=st.booleans(),
)
def test_every_choice_is_a_rank_and_no_budget_is_negative(method, steps, inactive, skip):
    """Whatever the ranks publish, in whatever order: an existing rank, an active one under round robin, and no debt in the books."""
    router = Router(method, 5, skip_same=skip)
    for rank in inactive:
        router.set_active(rank, active=False)
    for i, (loads, tokens, room) in enumerate(steps):
        router.refresh(float(i), loads)
        rank = router.choose(tokens, room=room)
        assert 0 <= rank < 5
        if method == "round_robin":
            assert rank not in inactive
        assert all(requests >= 0 and held >= 0 for requests, held in map(router.budget, range(5)))
