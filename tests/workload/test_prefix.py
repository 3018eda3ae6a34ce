"""A rank's prefix cache keeps what the rank has served, as far as there is room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workload.config import Limits
from workload.prefix import PrefixCache, RankPrefixes, Segment
from workload.scheduler import Request, Scheduler

SYSTEM, DOC, OTHER = Segment("system", 100), Segment("doc", 300), Segment("other", 250)


def test_the_longest_known_beginning_is_cached():
    """Segments count from the first on, up to the first unknown one; the same segment elsewhere is another text."""
    cache = PrefixCache(1000)
    cache.insert((SYSTEM, DOC))
    assert cache.match((SYSTEM, DOC, Segment("question", 20))) == 400
    assert cache.match((SYSTEM, OTHER)) == 100
    assert cache.match((DOC,)) == 0
    assert cache.match((Segment("system", 101), DOC)) == 0
    assert cache.match(()) == 0


def test_common_beginnings_are_held_once():
    """Two documents behind one system prompt: its tokens count once."""
    cache = PrefixCache(1000)
    cache.insert((SYSTEM, DOC))
    cache.insert((SYSTEM, OTHER))
    assert cache.tokens == 100 + 300 + 250


def test_the_least_recently_used_leaf_goes_first():
    """A look-up is a use; what others are built on stays as long as they do."""
    cache = PrefixCache(700)
    cache.insert((SYSTEM, DOC))
    cache.insert((SYSTEM, OTHER))
    cache.match((SYSTEM, DOC))
    cache.insert((SYSTEM, Segment("third", 200)))  # 850 > 700: OTHER goes
    assert cache.tokens == 100 + 300 + 200
    assert cache.match((SYSTEM, OTHER)) == 100
    assert cache.match((SYSTEM, DOC)) == 400


def test_a_chain_longer_than_the_cache_keeps_its_beginning():
    """What does not fit is not held, and drops no part of its own chain."""
    cache = PrefixCache(350)
    cache.insert((SYSTEM, DOC))
    assert (cache.match((SYSTEM, DOC)), cache.tokens) == (100, 100)
    none = PrefixCache(0)
    none.insert((SYSTEM,))
    assert none.match((SYSTEM,)) == 0
    with pytest.raises(ValueError, match="-1 tokens; 0 keeps nothing"):
        PrefixCache(-1)


CHAINS = st.lists(st.builds(Segment, st.sampled_from("abcd"), st.integers(1, 60)), max_size=6)


@given(capacity=st.integers(0, 300), chains=st.lists(CHAINS, max_size=25))
def test_it_never_holds_more_than_it_may_and_never_finds_more_than_there_is(capacity, chains):
    """After any history: within the bound, and what was just inserted is found in full when it fits at all."""
    cache = PrefixCache(capacity)
    for chain in chains:
        total = sum(segment.tokens for segment in chain)
        assert cache.match(chain) <= min(total, cache.tokens)
        cache.insert(chain)
        assert 0 <= cache.tokens <= capacity
        if total <= capacity:
            assert cache.match(chain) == total


def test_a_request_fills_the_cache_as_it_goes():
    """Its beginning can be shared from its first token on, its new part with the answer from its end on."""
    rank = RankPrefixes(10_000)
    assert rank.arrived(1, (SYSTEM,), "talk.0", prompt=150, output=30) == 0
    assert rank.arrived(2, (SYSTEM,), "", prompt=150, output=30) == 0
    rank.progressed(first=[1], finished=[])
    assert rank.arrived(3, (SYSTEM,), "", prompt=150, output=30) == 100
    rank.progressed(first=[], finished=[1])
    assert rank.arrived(4, (SYSTEM, Segment("talk.0", 50 + 30)), "talk.1", prompt=200, output=5) == 180


def test_an_aborted_request_leaves_nothing_behind():
    """Its answer never came to be."""
    rank = RankPrefixes(10_000)
    rank.arrived(1, (SYSTEM,), "talk.0", prompt=150, output=30)
    rank.gone([1, 99])
    rank.progressed(first=[1], finished=[1])
    assert rank.cache.tokens == 0


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token():
    """The last prompt token's output is the first answer token."""
    rank = RankPrefixes(10_000)
    rank.cache.insert((SYSTEM,))
    assert rank.arrived(1, (SYSTEM,), "", prompt=100, output=5) == 99


def serve(scheduler: Scheduler, request: Request) -> tuple[int, int]:
    """(cached, prefilled) tokens of a request that runs alone to its end."""
    scheduler.submit(request)
    cached = prefilled = 0
    while (batch := scheduler.next_batch()) is not None:
        if batch.mode == "extend":
            cached, prefilled = cached + batch.cached_tokens, prefilled + batch.tokens
        scheduler.complete(batch)
    return cached, prefilled


def test_a_conversation_pays_again_on_a_rank_that_has_not_served_it():
    """The second turn prefills its new message alone where the first one ran, and everything on another rank."""
    home, away = Scheduler(Limits()), Scheduler(Limits())
    first = Request(1, prompt=600, cached=0, output=40, prefix=(Segment("system", 500),), keeps="talk.0")
    assert serve(home, first) == (0, 600)
    chain = (Segment("system", 500), Segment("talk.0", 140))
    assert serve(home, Request(2, 690, 0, 10, prefix=chain, keeps="talk.1")) == (640, 50)
    assert serve(away, Request(3, 690, 0, 10, prefix=chain, keeps="talk.1")) == (0, 690)


def test_a_request_without_named_beginnings_keeps_the_cached_count_it_came_with():
    """Traffic that says itself what is cached never asks the cache."""
    scheduler = Scheduler(Limits())
    assert serve(scheduler, Request(1, prompt=600, cached=590, output=2)) == (590, 10)
    assert scheduler.prefixes.cache.tokens == 0
