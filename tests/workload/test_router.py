"""Requests go where SGLang 0.5.23's controller would send them."""

from __future__ import annotations

from workload.router import REFRESH_SECONDS, RankLoad, Router


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
