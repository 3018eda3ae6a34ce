"""The KV pool counts."""

from __future__ import annotations

import pytest

from workload.kv import KvPool


def test_what_is_taken_is_used_until_it_is_given_back():
    """Free and used add up to the capacity."""
    pool = KvPool(100)
    pool.take(30)
    pool.take(20)
    pool.give_back(30)
    assert (pool.used, pool.free) == (20, 80)


def test_more_than_is_free_cannot_be_taken():
    """The caller makes room first."""
    pool = KvPool(100)
    pool.take(99)
    with pytest.raises(ValueError, match="2 tokens asked of a pool with 1 free"):
        pool.take(2)


def test_a_reservation_is_used_and_nobodys():
    """It replaces the last one, and what is lent already is owed to it until it comes back."""
    pool = KvPool(100)
    pool.reserve(70)
    assert (pool.used, pool.free) == (70, 30)
    pool.take(30)
    pool.reserve(90)
    assert (pool.used, pool.free) == (100, -20)
    pool.give_back(30)
    assert (pool.used, pool.free) == (90, 10)
    pool.reserve(0)
    assert (pool.used, pool.free) == (0, 100)


@pytest.mark.parametrize("tokens", [-1, 101])
def test_a_reservation_fits_the_pool(tokens: int):
    """Neither negative nor more than there is."""
    with pytest.raises(ValueError, match=f"{tokens} tokens reserved of a pool of 100"):
        KvPool(100).reserve(tokens)


def test_nothing_may_be_taken_while_a_reservation_waits():
    """The pool owes 20 tokens to its reservation: no token is to be had, and to ask for none is no mistake."""
    pool = KvPool(100)
    pool.take(60)
    pool.reserve(60)
    assert pool.free == -20
    pool.take(0)
    with pytest.raises(ValueError, match="1 tokens asked of a pool with -20 free"):
        pool.take(1)
    assert pool.used == 100
