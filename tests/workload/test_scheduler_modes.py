"""Mixed prefill and speculation, step by step."""

from __future__ import annotations

import pytest

from workload.config import Limits
from workload.scheduler import Request, Scheduler
from workload.scheduling.settings import EngineFlags, Speculation
from workload.scheduling.speculation import Acceptance

SMALL = Limits(max_running_requests=8, kv_tokens=2000, chunk_tokens=100)


def step(scheduler: Scheduler):
    batch = scheduler.next_batch()
    assert batch is not None
    return batch


# --- mixed prefill


def test_decode_rows_ride_in_the_extend_batch():
    """They take their tokens from the chunk, and go on while another prompt is prefilled."""
    scheduler = Scheduler(SMALL, EngineFlags(mixed=True))
    scheduler.submit(Request(0, 30, 29, 9))
    scheduler.submit(Request(1, 50, 49, 9))
    assert step(scheduler).mode == "extend"  # nothing decodes yet
    scheduler.submit(Request(2, 250, 0, 9))
    mixed = step(scheduler)
    assert (mixed.mode, mixed.tokens, mixed.rows) == ("mixed", 100, 2)
    assert mixed.row_pairs == 31 + 51
    assert mixed.pairs == 98 * 99 // 2 + 31 + 51
    assert [r.rid for r in mixed.requests] == [0, 1]  # the prompt is not done
    assert scheduler.complete(mixed).generated == 2
    chunks = [step(scheduler), step(scheduler)]
    assert [(c.tokens, c.rows, len(c.requests)) for c in chunks] == [(100, 2, 2), (250 - 2 * 98 + 2, 2, 3)]
    assert (step(scheduler).mode, scheduler.kv.used) == ("decode", 30 + 50 + 250 + 4 + 4 + 1)


def test_without_a_prefill_there_is_nothing_to_ride_in():
    """A plain decode."""
    scheduler = Scheduler(SMALL, EngineFlags(mixed=True))
    scheduler.submit(Request(0, 30, 29, 9))
    step(scheduler)
    assert step(scheduler).mode == "decode"


def test_a_mixed_batch_ends_its_requests_too():
    """What is asked for is made, no more and no less, and no KV is left behind."""
    scheduler = Scheduler(SMALL, EngineFlags(mixed=True))
    for rid in range(6):
        scheduler.submit(Request(rid, 120, 20, 3 + rid))
    generated, finished = 0, []
    while (batch := scheduler.next_batch()) is not None:
        result = scheduler.complete(batch)
        generated += result.generated
        finished += result.finished
    assert generated == sum(3 + rid for rid in range(6))
    assert sorted(finished) == list(range(6))
    assert (scheduler.kv.used, scheduler.idle) == (0, True)


# --- speculation


@pytest.mark.parametrize(("accept", "gain"), [(0.0, 1), (1.0, 4)])
def test_a_verify_step_counts_rows_and_yields_what_was_accepted(accept: float, gain: int):
    """One token a row is reported, 4 are computed, and the row gets its accepted drafts and one more."""
    scheduler = Scheduler(SMALL, EngineFlags(speculation=Speculation(steps=3, accept=accept)))
    scheduler.submit(Request(0, 30, 29, 50))
    scheduler.submit(Request(1, 60, 59, 50))
    prefill = step(scheduler)
    assert (prefill.gains, prefill.width, prefill.rows) == ((1, 1), 1, 0)  # a prefill verifies nothing
    scheduler.complete(prefill)
    verify = step(scheduler)
    assert (verify.tokens, verify.rows, verify.width, verify.pairs) == (2, 2, 4, 31 + 61)
    assert (verify.gains, verify.accepted) == ((gain, gain), 2 * (gain - 1))
    assert scheduler.complete(verify).generated == 2 * gain
    assert step(scheduler).pairs == 31 + 61 + 2 * gain


def test_a_request_gets_no_more_than_it_asked_for():
    """The last verify step is cut."""
    scheduler = Scheduler(SMALL, EngineFlags(speculation=Speculation(steps=3, accept=1.0)))
    scheduler.submit(Request(0, 30, 29, 7))
    batches = [step(scheduler) for _ in range(3)]
    assert [b.gains for b in batches] == [(1,), (4,), (2,)]
    results = [scheduler.complete(b) for b in batches]
    assert [r.finished for r in results] == [[], [], [0]]
    assert (scheduler.kv.used, scheduler.next_batch()) == (0, None)


def test_a_chain_of_drafts_ends_with_the_first_refusal():
    """Mean of accepted drafts p + p^2 + p^3, with p halved by the factor; 20,000 rows leave a spread below 0.01."""
    acceptance = Acceptance(Speculation(steps=3, accept=0.8), seed=5)

    def mean() -> float:
        return sum(acceptance.draw() for _ in range(20_000)) / 20_000

    assert mean() == pytest.approx(0.8 + 0.64 + 0.512, abs=0.04)
    acceptance.factor = 0.5
    assert mean() == pytest.approx(0.4 + 0.16 + 0.064, abs=0.04)


def test_room_is_made_for_all_that_may_be_accepted():
    """4 tokens a row, and the newest goes first: a speculative batch can only be cut at its end."""
    scheduler = Scheduler(SMALL, EngineFlags(speculation=Speculation(steps=3, accept=0.0)))
    for rid in range(2):
        scheduler.submit(Request(rid, 30, 29, 50))
    step(scheduler)
    scheduler.kv.reserve(scheduler.kv.free - 7)
    assert [r.rid for r in step(scheduler).requests] == [0]
    assert scheduler.take_retracted().requests == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: EngineFlags(mixed=True, speculation=Speculation()), "mixed prefill and speculation"),
        (lambda: Speculation(steps=0), "at least 1"),
        (lambda: Speculation(accept=1.5), "0 to 1"),
        (lambda: EngineFlags(publish_every=0), "at least 1"),
    ],
)
def test_switches_that_cannot_be_are_refused(wrong, says: str):
    """With the reason, before any process starts."""
    with pytest.raises(ValueError, match=says):
        wrong()
