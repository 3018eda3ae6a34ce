"""One rank's scheduler, step by step, with numbers that can be checked by hand."""

from __future__ import annotations

import pytest

from workload.config import Limits
from workload.scheduler import Batch, Request, Scheduler
from workload.scheduling.settings import EngineFlags, RetractPolicy

SMALL = Limits(max_running_requests=4, kv_tokens=1000, chunk_tokens=100)


def step(scheduler: Scheduler) -> Batch:
    """Schedules a batch that must exist."""
    batch = scheduler.next_batch()
    assert batch is not None
    return batch


def submit(scheduler: Scheduler, *requests: Request) -> None:
    for request in requests:
        scheduler.submit(request)


def test_a_request_is_prefilled_then_decoded_to_its_end():
    """Prefill yields the first token, each decode one more; the KV is freed when the last result is in, not when it is launched."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, Request(7, prompt=50, cached=40, output=3))
    prefill = step(scheduler)
    # 10 new tokens behind a prefix of 40: 10 * 40 + 10 * 11 / 2
    assert (prefill.mode, prefill.tokens, prefill.pairs, prefill.cached_tokens) == ("extend", 10, 455, 40)
    second = step(scheduler)
    assert (second.mode, second.tokens, second.pairs) == ("decode", 1, 51)
    assert scheduler.complete(prefill).first == [7]
    third = step(scheduler)
    assert third.pairs == 52
    assert scheduler.complete(second).finished == []
    assert scheduler.next_batch() is None
    assert scheduler.kv.used == 52
    assert scheduler.complete(third).finished == [7]
    assert (scheduler.kv.used, scheduler.idle) == (0, True)


def test_pairs_of_a_batch_are_the_sum_of_its_contexts():
    """A decode step attends to every token of every running request."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, Request(0, 30, 29, 9), Request(1, 60, 59, 9))
    step(scheduler)
    assert step(scheduler).pairs == 31 + 61
    assert step(scheduler).pairs == 32 + 62


def test_a_long_prompt_goes_chunk_by_chunk_and_keeps_decodes_waiting():
    """At most a chunk a step; the rank's own decodes stand still until the prompt is done."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, Request(0, 10, 0, 50))
    step(scheduler)
    submit(scheduler, Request(1, 250, 0, 2))
    chunks = [step(scheduler) for _ in range(3)]
    assert [(c.mode, c.tokens) for c in chunks] == [("extend", 100), ("extend", 100), ("extend", 50)]
    assert [c.pairs for c in chunks] == [100 * 101 // 2, 100 * 100 + 100 * 101 // 2, 50 * 200 + 50 * 51 // 2]
    assert [len(c.requests) for c in chunks] == [0, 0, 1]  # only the last chunk brings a token
    assert step(scheduler).tokens == 2


def test_a_chunk_is_shared_by_several_prompts():
    """What one prompt leaves of the chunk the next one takes; the one cut off goes first in the next step."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, Request(0, 70, 0, 2), Request(1, 70, 0, 2))
    first, second = step(scheduler), step(scheduler)
    assert (first.tokens, [r.rid for r in first.requests]) == (100, [0])
    assert (second.tokens, [r.rid for r in second.requests]) == (40, [1])
    assert scheduler.waiting_uncached_tokens == 0


def test_admission_stops_at_the_request_limit_and_at_the_pool():
    """Neither more requests than allowed run, nor does one start whose context has no room."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, *(Request(i, 10, 9, 50) for i in range(6)))
    assert len(step(scheduler).requests) == 4
    assert len(scheduler.waiting) == 2

    full = Scheduler(SMALL)
    submit(full, Request(0, 700, 699, 50), Request(1, 400, 399, 50))
    assert len(step(full).requests) == 1
    assert (len(full.waiting), full.waiting_tokens, full.waiting_uncached_tokens) == (1, 400, 1)


def test_admission_keeps_room_for_tokens_to_come():
    """Beside 0.21 of what the running ones still owe, a newcomer needs its context and its whole answer."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, Request(0, 500, 499, 200))
    step(scheduler)
    # 500 held, 199 * 0.21 = 41.8 kept free: 458.2 are left for 259 + 200, too few
    submit(scheduler, Request(1, 259, 258, 200))
    assert step(scheduler).mode == "decode"
    scheduler.abort([1])
    # 501 held, 198 * 0.2097 = 41.5: 457.5 are left, and 257 + 200 fit
    submit(scheduler, Request(2, 257, 256, 200))
    assert step(scheduler).mode == "extend"


def test_the_kept_room_shrinks_with_every_decode_and_never_below_its_floor():
    """From 0.21 by a six-hundredth of the way to 0.14 of it; an idle rank begins again."""
    scheduler = Scheduler(Limits(kv_tokens=2000, chunk_tokens=100))
    submit(scheduler, Request(0, 10, 9, 700))
    batches = [step(scheduler)]
    assert scheduler.ratio.value == pytest.approx(0.21)
    batches += [step(scheduler) for _ in range(300)]
    assert scheduler.ratio.value == pytest.approx(0.21 * (1 + 0.14) / 2)
    batches += [step(scheduler) for _ in range(399)]
    assert scheduler.ratio.value == pytest.approx(0.21 * 0.14)
    for batch in batches:
        scheduler.complete(batch)
    assert scheduler.idle
    assert scheduler.ratio.value == pytest.approx(0.21)


def test_no_request_is_expected_to_make_more_than_the_clip():
    """An answer of 100,000 tokens is taken for one of 4096."""
    scheduler = Scheduler(Limits(kv_tokens=200_000, chunk_tokens=100))
    submit(scheduler, Request(0, 10, 9, 100))
    step(scheduler)
    submit(scheduler, Request(1, 195_000, 194_999, 4_900))
    assert step(scheduler).mode == "extend"


@pytest.mark.parametrize(("policy", "gone"), [("engine", 1), ("longest", 0), ("newest", 2)])
def test_who_is_retracted(policy: RetractPolicy, gone: int):
    """The engine's own choice is who has generated least, the longest prompt among equals; or the longest context; or the newest."""
    scheduler = Scheduler(Limits(max_running_requests=4, kv_tokens=1000, chunk_tokens=300), EngineFlags(retract=policy))
    submit(scheduler, Request(0, 300, 300, 50))
    step(scheduler)
    step(scheduler)
    submit(scheduler, Request(1, 200, 200, 50), Request(2, 100, 100, 50))
    step(scheduler)
    scheduler.kv.reserve(scheduler.kv.free)
    step(scheduler)
    assert [r.rid for r in scheduler.waiting] == [gone]


def test_retraction_gives_the_kv_back_and_is_counted():
    """The request queues behind all others, with what it had generated to be prefilled again; the kept room jumps."""
    scheduler = Scheduler(Limits(max_running_requests=2, kv_tokens=200, chunk_tokens=100))
    submit(scheduler, Request(0, 60, 59, 5), Request(1, 40, 39, 5), Request(2, 10, 9, 5))
    step(scheduler)
    assert step(scheduler).tokens == 2
    assert scheduler.kv.used == 102
    scheduler.kv.reserve(97)
    batch = step(scheduler)
    assert [r.rid for r in batch.requests] == [1]
    assert [r.rid for r in scheduler.waiting] == [2, 0]
    taken = scheduler.take_retracted()
    assert (taken.requests, taken.input_tokens, taken.output_tokens) == (1, 60, 2)
    assert scheduler.take_retracted().requests == 0
    assert scheduler.waiting_tokens == 10 + 62
    # (2 generated + 20) of (5 wanted + 1), at most 1
    assert scheduler.ratio.value == pytest.approx(1.0, abs=0.001)


def test_a_retracted_request_still_produces_all_its_tokens():
    """Whatever happens on the way, each request yields exactly what was asked of it, and nothing is left behind."""
    scheduler = Scheduler(Limits(max_running_requests=8, kv_tokens=300, chunk_tokens=64))
    wanted = {rid: 40 + rid for rid in range(6)}
    submit(scheduler, *(Request(rid, 50, 20, output) for rid, output in wanted.items()))
    finished: list[int] = []
    firsts: list[int] = []
    generated = retracted = 0
    in_flight = None
    for _ in range(1000):
        batch = scheduler.next_batch()
        if in_flight is not None:
            result = scheduler.complete(in_flight)
            finished += result.finished
            firsts += result.first
            generated += result.generated
        retracted += scheduler.take_retracted().requests
        in_flight = batch
    assert retracted > 0
    assert sorted(finished) == sorted(firsts) == sorted(wanted)
    assert generated == sum(wanted.values())
    assert (scheduler.kv.used, scheduler.idle) == (0, True)


def test_abort_frees_a_request_wherever_it_is():
    """Waiting, half prefilled, running or in flight: its KV comes back at once and its result is ignored."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, Request(0, 10, 9, 5), Request(1, 300, 0, 5), Request(2, 10, 9, 5))
    in_flight = step(scheduler)
    scheduler.abort([0, 1, 2, 99])
    assert scheduler.complete(in_flight).generated == 0
    assert (scheduler.kv.used, scheduler.idle, scheduler.next_batch()) == (0, True, None)


def test_a_cached_prompt_still_computes_its_last_token():
    """The last prompt token's output is the first answer token: a prefix cache cannot save that."""
    scheduler = Scheduler(SMALL)
    submit(scheduler, Request(0, 50, 50, 2))
    assert step(scheduler).tokens == 1


def test_a_request_that_can_never_fit_is_refused():
    """Waiting for room that cannot come would block the queue for ever."""
    with pytest.raises(ValueError, match="can never fit"):
        Scheduler(SMALL).submit(Request(0, 990, 0, 20))


def test_the_reference_case_of_seven_to_one():
    """8 ranks with 4 requests of 8K, one of them 200K on rank 0: 229,376 pairs against 32,768, and 196,608 apart in every step."""
    ranks = [Scheduler(Limits()) for _ in range(8)]
    for rank, scheduler in enumerate(ranks):
        for rid in range(4):
            # the first decode attends to the prompt and the first new token
            prompt = 204_799 if (rank, rid) == (0, 0) else 8_191
            submit(scheduler, Request(rid, prompt, prompt, 100))
        step(scheduler)
    pairs = [step(scheduler).pairs for scheduler in ranks]
    assert pairs == [229_376] + [32_768] * 7
    for _ in range(20):
        first, *others = [step(scheduler).pairs for scheduler in ranks]
        assert {first - other for other in others} == {196_608}
