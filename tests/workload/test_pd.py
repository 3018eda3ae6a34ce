"""The schedulers of a prefill and of a decode server, driven by hand: seconds, bytes and tokens by arithmetic."""

from __future__ import annotations

import pytest

from workload.config import Limits
from workload.scheduler import Request
from workload.scheduling.decode_role import DecodeScheduler
from workload.scheduling.link import KvLink
from workload.scheduling.prefill_role import PrefillScheduler
from workload.scheduling.request import Queues
from workload.scheduling.settings import EngineFlags, Split

LIMITS = Limits(max_running_requests=8, kv_tokens=10_000, chunk_tokens=1000)
KV = 576 * 78  # bytes per token


def prefill_server(**split) -> PrefillScheduler:
    half = Split("prefill", handshake=0.1, peer=0.2, gb_per_second=KV / 1e6, **split)  # 1000 tokens a second
    return PrefillScheduler(LIMITS, EngineFlags(split=half), half)


def decode_server(limits: Limits = LIMITS, **split) -> DecodeScheduler:
    half = Split("decode", **({"handshake": 0.1, "peer": 0.2, "gb_per_second": KV / 1e6, "reserved_tokens": 100} | split))
    return DecodeScheduler(limits, EngineFlags(split=half), half)


# --- the link


def test_the_link_sends_one_after_the_other():
    """1000 bytes a second: 500 bytes queued at 1 s end at 1.5, the next 1000 at 2.5."""
    link = KvLink(1e-6)
    first, second = Request(0, 1, 0, 1), Request(1, 1, 0, 1)
    link.put(first, 500, 1.0)
    link.put(second, 1000, 1.0)
    assert link.advance(1.4) == []
    done = link.advance(2.0)
    assert [t.request for t in done] == [first]
    assert done[0].ended == pytest.approx(1.5)
    assert [t.ended for t in link.advance(9.0)] == [pytest.approx(2.5)]
    assert len(link) == 0


def test_a_degraded_link_takes_longer_for_what_is_left():
    """Half is gone when the speed falls to a tenth: the other half takes ten times as long; at 0 nothing moves."""
    link = KvLink(1e-6)
    link.put(Request(0, 1, 0, 1), 1000, 0.0)
    link.advance(0.5)
    link.factor = 0.0
    assert link.advance(5.0) == []
    link.factor = 0.1
    assert [t.ended for t in link.advance(20.0)] == [pytest.approx(10.0)]


def test_a_dropped_transfer_frees_the_link():
    """The next one begins at once."""
    link = KvLink(1e-6)
    first, second = Request(0, 1, 0, 1), Request(1, 1, 0, 1)
    link.put(first, 1_000_000, 0.0)
    link.put(second, 100, 0.0)
    link.advance(1.0)
    link.drop(first)
    assert [t.ended for t in link.advance(2.0)] == [pytest.approx(1.1)]


# --- prefill server


def test_a_request_goes_through_a_prefill_server():
    """Bootstrap for 0.3 s, prefill, 500 tokens' KV in half a second, and only then is its KV free and the request gone."""
    server = prefill_server()
    server.submit(Request(7, 500, 0, 300, arrived=10.0))
    assert server.advance(10.2).tells is False
    assert (server.queues, server.next_batch()) == (Queues(bootstrap=1), None)
    assert (server.waiting_tokens, server.waiting_uncached_tokens) == (500, 500)
    turned = server.advance(10.4)
    assert (turned.handshakes, turned.allocations) == ([0.1], [0.2])
    assert dict(turned.stages) == pytest.approx({"prefill_bootstrap": 0.4})
    batch = server.next_batch()
    assert batch is not None
    assert (batch.mode, batch.tokens) == ("extend", 500)
    assert server.next_batch() is None  # one token is all that it makes here
    server.advance(11.0)
    result = server.complete(batch)
    assert (result.first, result.finished, result.generated) == ([7], [], 1)
    assert (server.queues, server.kv.used, server.running) == (Queues(inflight=1), 500, [])
    assert server.advance(11.4).finished == []
    turned = server.advance(11.6)
    assert turned.finished == [7]
    assert [(sent.size, round(sent.seconds, 6)) for sent in turned.sent] == [(500 * KV, 0.5)]
    assert (server.queues, server.kv.used, server.idle) == (Queues(), 0, True)


def test_a_slow_link_fills_the_inflight_queue_and_the_pool():
    """At a tenth of the speed three requests of 500 tokens need 5 s each."""
    server = prefill_server()
    server.link.factor = 0.1
    for rid in range(3):
        server.submit(Request(rid, 500, 400, 9, arrived=0.0))
    server.advance(1.0)
    batch = server.next_batch()
    assert batch is not None
    server.complete(batch)
    assert (server.queues.inflight, server.kv.used) == (3, 1500)
    assert server.advance(6.5).finished == [0]
    assert server.advance(16.5).finished == [1, 2]


def test_a_failed_transfer_ends_the_request_with_an_error():
    """Nothing was sent, and the KV is free."""
    server = prefill_server(failures=1.0)
    server.submit(Request(7, 500, 0, 300, arrived=0.0))
    server.advance(1.0)
    batch = server.next_batch()
    assert batch is not None
    server.complete(batch)
    turned = server.advance(2.0)
    assert (turned.failed, turned.finished, turned.sent) == ([7], [], [])
    assert (server.kv.used, server.idle) == (0, True)


def test_abort_finds_a_request_in_every_queue_of_a_prefill_server():
    """Bootstrap, and in flight."""
    server = prefill_server()
    server.submit(Request(0, 500, 0, 9, arrived=0.0))
    server.advance(1.0)
    batch = server.next_batch()
    assert batch is not None
    server.complete(batch)
    server.submit(Request(1, 500, 0, 9, arrived=1.0))
    assert server.queues == Queues(bootstrap=1, inflight=1)
    server.abort([0, 1])
    assert (server.queues, server.kv.used, server.idle) == (Queues(), 0, True)
    assert server.advance(9.0).tells is False


# --- decode server


def test_a_request_goes_through_a_decode_server():
    """Prealloc until the handshake, transfer until the other side has computed and the link has sent, then it decodes."""
    server = decode_server()
    server.submit(Request(7, 500, 0, 3, arrived=10.0))
    server.advance(10.05)
    assert server.queues == Queues(prealloc=1)
    assert (server.waiting_tokens, server.awaited_tokens, server.waiting_uncached_tokens) == (500, 500, 0)
    turned = server.advance(10.15)
    assert turned.handshakes == [0.1]
    assert turned.allocations == pytest.approx([0.05])
    assert server.queues == Queues(transfer=1, early_tokens=500)
    assert (server.kv.used, server.waiting_tokens, server.awaited_tokens) == (500, 0, 500)
    server.advance(10.31)  # computed at 10.3, and seen a loop later: 500 tokens need half a second
    assert server.advance(10.7).first == []
    turned = server.advance(10.9)
    assert (turned.first, turned.finished) == ([7], [])  # its first token came with the KV
    assert [sent.size for sent in turned.sent] == [500 * KV]
    assert turned.sent[0].seconds == pytest.approx(0.51)
    batches = [server.next_batch(), server.next_batch()]
    assert [(b.mode, b.pairs) for b in batches if b] == [("decode", 501), ("decode", 502)]
    results = [server.complete(b) for b in batches if b]
    assert [(r.first, r.finished, r.generated) for r in results] == [([], [], 1), ([], [7], 1)]
    assert (server.kv.used, server.idle, server.next_batch()) == (0, True, None)


def test_an_answer_of_one_token_never_decodes():
    """It is complete with its KV's arrival."""
    server = decode_server()
    server.submit(Request(7, 500, 0, 1, arrived=0.0))
    server.advance(0.2)
    server.advance(0.35)
    turned = server.advance(2.0)
    assert (turned.first, turned.finished) == ([7], [7])
    assert (server.kv.used, server.idle) == (0, True)


def test_prealloc_waits_for_room_with_a_reserve_for_every_request():
    """1000 tokens: 400 held and 100 reserved leave 500; a prompt of 401 with its own reserve is one too many, and blocks the next."""
    small = Limits(max_running_requests=8, kv_tokens=1000, chunk_tokens=1000)
    server = decode_server(small)
    server.submit(Request(0, 400, 0, 5, arrived=0.0))
    server.submit(Request(1, 401, 0, 5, arrived=0.0))
    server.submit(Request(2, 10, 0, 5, arrived=0.0))
    server.advance(0.2)
    assert server.queues == Queues(prealloc=2, transfer=1, prealloc_ready=2, prealloc_ready_tokens=411, early_tokens=400)
    server.abort([0])
    server.advance(0.35)
    assert server.queues == Queues(transfer=2, early_tokens=411)


def test_a_retracted_request_comes_back_without_a_prefill_and_before_new_ones():
    """Its KV was kept in host memory: no first token again, the same answer length, and nothing new is let in meanwhile."""
    server = decode_server(reserved_tokens=0)
    server.submit(Request(0, 600, 0, 40, arrived=0.0))
    server.submit(Request(1, 300, 0, 40, arrived=0.0))
    for now in (0.2, 0.35, 5.0):
        server.advance(now)
    batch = server.next_batch()
    assert batch is not None
    assert batch.rows == 2
    server.kv.reserve(10_000 - 700)
    batch = server.next_batch()
    assert batch is not None
    assert [r.rid for r in batch.requests] == [1]  # both have generated 2: the longer prompt goes
    server.submit(Request(2, 10, 0, 5, arrived=5.0))
    server.advance(6.0)
    assert server.queues == Queues(prealloc=1, retracted=1, prealloc_ready=1, prealloc_ready_tokens=10)
    assert server.waiting_tokens == 602 + 10
    server.kv.reserve(0)
    server.advance(6.1)
    assert (server.queues.retracted, server.queues.transfer) == (0, 1)
    batch = server.next_batch()
    assert batch is not None
    assert (batch.mode, batch.pairs) == ("decode", 602 + 303)


def test_a_slow_link_holds_kv_that_nobody_decodes():
    """Of 5 requests of 1000 tokens at a tenth of the speed, two arrive in 25 s."""
    server = decode_server()
    server.link.factor = 0.1
    for rid in range(5):
        server.submit(Request(rid, 1000, 0, 9, arrived=0.0))
    server.advance(0.2)
    server.advance(0.35)
    assert server.advance(25.0).first == [0, 1]
    assert server.queues == Queues(transfer=3, early_tokens=5000)


def test_a_failed_transfer_frees_what_was_allocated_for_it():
    """And the request ends with an error."""
    server = decode_server(failures=1.0)
    server.submit(Request(7, 500, 0, 3, arrived=0.0))
    for now in (0.2, 0.35):
        server.advance(now)
    turned = server.advance(3.0)
    assert (turned.failed, turned.first, turned.sent) == ([7], [], [])
    assert (server.kv.used, server.idle) == (0, True)


def test_what_can_never_fit_with_its_reserve_is_refused():
    """It would block the prealloc queue for ever."""
    with pytest.raises(ValueError, match=r"9901 tokens and 100 reserved of 10000"):
        decode_server().submit(Request(0, 9_901, 0, 3))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Split("decode", gb_per_second=0), "more than 0"),
        (lambda: Split("decode", failures=2), "0 to 1"),
        (lambda: EngineFlags(split=Split("prefill"), mixed=True), "mixed prefill on a prefill server"),
    ],
)
def test_halves_that_cannot_be_are_refused(wrong, says: str):
    """With the reason, before any process starts."""
    with pytest.raises(ValueError, match=says):
        wrong()
