"""vLLM's scheduler: decodes first, prefill in what the token budget leaves, KV as it is computed, the newest preempted."""

from __future__ import annotations

from workload.config import Limits
from workload.scheduling.request import Request
from workload.vllm.scheduler import VllmScheduler


def step(scheduler: VllmScheduler) -> tuple[int, int]:
    """Runs one step to its end. Returns its decode rows and prefill tokens."""
    batch = scheduler.next_batch()
    assert batch is not None
    scheduler.complete(batch)
    return batch.rows, batch.tokens - batch.rows


def test_decodes_run_beside_a_prefill():
    """Budget 100: once request 1 decodes, its one row and 99 tokens of request 2's prompt share each step."""
    scheduler = VllmScheduler(Limits(kv_tokens=1000, chunk_tokens=100))
    scheduler.submit(Request(1, 50, 0, 10))
    assert step(scheduler) == (0, 50)
    scheduler.submit(Request(2, 150, 0, 10))
    assert step(scheduler) == (1, 99)
    assert step(scheduler) == (1, 51)
    assert step(scheduler) == (2, 0)


def test_cached_tokens_cost_no_budget():
    """A prompt of 150 with 90 cached fits a budget of 100 at once, and holds KV for all of it."""
    scheduler = VllmScheduler(Limits(kv_tokens=1000, chunk_tokens=100))
    scheduler.submit(Request(1, 150, 90, 5))
    assert step(scheduler) == (0, 60)
    assert scheduler.kv.used == 150


def test_the_newest_gives_way_when_the_pool_is_full():
    """Two requests of 50 fill a pool of 101 but for one token: the second one's KV goes, it waits at the head, and is told of once."""
    scheduler = VllmScheduler(Limits(kv_tokens=101, chunk_tokens=100))
    scheduler.submit(Request(1, 50, 0, 10))
    scheduler.submit(Request(2, 50, 0, 10))
    assert step(scheduler) == (0, 100)
    assert step(scheduler) == (1, 0)
    assert [r.rid for r in scheduler.waiting] == [2]
    assert scheduler.unfinished == 1
    assert scheduler.take_preempted([1, 2]) == [(2, 1)]
    assert scheduler.take_preempted([1, 2]) == []


def test_a_finished_request_leaves_nothing_behind():
    """The last token frees the KV; then there is nothing to run."""
    scheduler = VllmScheduler(Limits(kv_tokens=100, chunk_tokens=100))
    scheduler.submit(Request(1, 10, 0, 2))
    assert (step(scheduler), step(scheduler)) == ((0, 10), (1, 0))
    assert scheduler.idle
    assert scheduler.kv.used == 0
    assert scheduler.next_batch() is None
