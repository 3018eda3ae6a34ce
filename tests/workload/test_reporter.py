"""What a rank tells of each step, driven by hand against a recorder in the place of its metrics."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from workload import reporter as module
from workload.config import ClusterConfig, Limits
from workload.device import Ended
from workload.face.loads import DisaggregationSection, LoadSnapshot, QueuesSection, SnapshotReader, SpeculativeSection
from workload.reporter import Reporter, Step
from workload.scheduler import Batch, Request, Result, Scheduler
from workload.scheduling.make import make_scheduler
from workload.scheduling.request import Sent, Turned
from workload.scheduling.settings import EngineFlags, Speculation, Split

LIMITS = Limits(max_running_requests=4, kv_tokens=1000, chunk_tokens=100)
EVEN = Ended(span=0.04, rows=[[8, 8], [8, 8]])


class Recorder:
    """Stands where SchedulerMetrics is; every call is kept as (method, arguments)."""

    def __init__(self, **labels: Any) -> None:
        self.labels = labels
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self.calls.append((name, kwargs or (args[0] if len(args) == 1 else args)))

    def of(self, name: str) -> list[Any]:
        return [value for called, value in self.calls if called == name]


class Rank:
    """A rank's scheduler and reporter, one of two."""

    def __init__(self, path: Path, flags: EngineFlags) -> None:
        config = ClusterConfig(ranks=2, limits=LIMITS, engine=flags)
        self.scheduler: Scheduler = make_scheduler(config, 1)
        self.reporter = Reporter(config, 1, str(path / "loads"))
        self.reader = SnapshotReader(path / "loads", 2)
        self.now = time.monotonic()

    @property
    def metrics(self) -> Recorder:
        metrics = cast("Any", self.reporter.metrics)
        assert isinstance(metrics, Recorder)
        return metrics

    def step(self, *, graph: bool = True, converted: bool = False) -> Batch | None:
        """Schedules, launches and ends one step of 40 ms."""
        batch = self.scheduler.next_batch()
        tokens = [5, batch.tokens if batch else 0]
        step = Step(1, batch, tokens, tokens, int(batch is not None and batch.extends), graph, 0.001, self.now, converted)
        self.reporter.launched(step)
        self.now += 0.04
        result = self.scheduler.complete(batch) if batch else Result()
        self.reporter.ended(step, EVEN, result, self.scheduler, self.now)
        return batch

    def page(self) -> LoadSnapshot:
        self.reporter.publish(self.scheduler)
        snapshot = self.reader.read(1)
        assert snapshot is not None
        return snapshot


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a rank with these switches."""
    monkeypatch.setattr(module, "SchedulerMetrics", Recorder)

    def make(**flags: Any) -> Rank:
        return Rank(tmp_path, EngineFlags(**flags))

    return make


def test_a_prefill_and_a_decode_are_booked_apart(rank):
    """Categories, graph modes and tokens by kind; the prefill's busy time is its 40 ms, its tokens are the uncached 50."""
    it = rank()
    it.scheduler.submit(Request(0, 80, 30, 9))
    it.step(graph=False)
    it.step(graph=True)
    assert it.metrics.of("forward") == [("extend", 0.04), ("decode", 0.04)]
    assert it.metrics.of("prefill_pass") == [{"graph": False}]
    assert it.metrics.of("decode_pass") == [{"graph": True}]
    assert it.metrics.of("realtime") == [("prefill_compute", 50, 1), ("prefill_cache", 30, 1), ("decode", 1, 0)]
    page = it.page()
    assert (page.total_prefill_uncached_tokens, page.total_prefill_busy_us) == (50, 40_000)
    assert page.cache_hit_rate == pytest.approx(30 / 80)


def test_a_decode_that_ran_as_an_extend_is_in_no_decode_counter(rank):
    """Its time is an extend's, its rows are prefill tokens of /v1/loads, and it breaks the chain of decode steps."""
    it = rank()
    it.scheduler.submit(Request(0, 80, 79, 20))
    it.step()
    it.step()
    it.step(converted=True)
    it.step()
    assert [category for category, _ in it.metrics.of("forward")] == ["extend", "decode", "extend", "decode"]
    assert len(it.metrics.of("decode_pass")) == 2
    assert len(it.metrics.of("prefill_pass")) == 1
    assert [tokens for mode, tokens, _ in it.metrics.of("realtime") if mode == "decode"] == [1, 1]
    page = it.page()
    assert (page.total_prefill_uncached_tokens, page.total_prefill_busy_us) == (1 + 1, 80_000)
    assert page.decode_moments is None  # no two decodes in a row


def test_rows_of_a_mixed_batch_are_in_no_decode_counter_either(rank):
    """The prompt's own tokens alone are computed prefill; /v1/loads counts the rows with them."""
    it = rank(mixed=True)
    it.scheduler.submit(Request(0, 80, 79, 20))
    it.step()
    it.scheduler.submit(Request(1, 60, 0, 20))
    batch = it.step()
    assert batch is not None
    assert batch.mode == "mixed"
    assert it.metrics.of("realtime")[2:] == [("prefill_compute", 60, 1), ("prefill_cache", 0, 1)]
    assert it.page().total_prefill_uncached_tokens == 1 + 61


def test_a_verify_step_is_measured_by_rows_and_by_accepted_tokens(rank):
    """All drafts accepted: 4 tokens a row and step. Moments count rows b and generated tokens g; the forward is a target_verify."""
    it = rank(speculation=Speculation(steps=3, accept=1.0))
    it.scheduler.submit(Request(0, 80, 79, 200))
    it.scheduler.submit(Request(1, 80, 79, 200))
    it.step()
    assert it.page().speculative is None  # nothing verified yet
    for _ in range(40):
        it.step()
    assert it.metrics.of("forward")[1] == ("target_verify", 0.04)
    assert it.metrics.of("realtime")[2] == ("decode", 8, 0)
    stats = it.metrics.of("log")[-1]
    assert (stats.spec_accept_length, stats.spec_accept_rate) == (4.0, 1.0)
    assert (stats.spec_num_steps, stats.spec_num_draft_tokens) == (3, 4)
    page = it.page()
    assert page.speculative == SpeculativeSection(4.0, 1.0)
    assert page.decode_moments is not None
    n, b, t, bb, bt, g = page.decode_moments
    assert (n, b, bb, g) == (39, 78, 156, 312)
    assert (t, bt) == (pytest.approx(39 * 40_000), pytest.approx(78 * 40_000))


def test_retractions_are_counted_at_once_and_shown_for_one_window(rank):
    """The counters see them with the next result, the gauge and the queues section with the next log, and the one after says 0."""
    it = rank()
    it.scheduler.submit(Request(0, 80, 79, 200))
    it.scheduler.submit(Request(1, 40, 39, 200))
    it.step()
    it.scheduler.kv.reserve(it.scheduler.kv.free)
    it.step()
    assert it.metrics.of("retracted") == [{"requests": 1, "input_tokens": 80, "output_tokens": 1}]
    assert it.page().token_usage == pytest.approx((1000 - 80 + 1) / 1000)  # 880 reserved, 40 held and one made
    for _ in range(39):
        it.step()
    assert (it.metrics.of("log")[-1].num_retracted_reqs, it.page().queues) == (1, QueuesSection(waiting=1, retracted=1))
    for _ in range(40):
        it.step()
    assert (it.metrics.of("log")[-1].num_retracted_reqs, it.page().queues) == (0, QueuesSection(waiting=1))


def test_snapshots_come_every_so_many_quiet_results(rank):
    """Decode and idle results count together; a prefill publishes at once."""
    it = rank(publish_every=3)
    written: list[float] = []

    def steps(n: int) -> int:
        for _ in range(n):
            it.step()
            if not written or it.reporter.publisher.written != written[-1]:
                written.append(it.reporter.publisher.written)
        return len(written)

    it.scheduler.submit(Request(0, 80, 79, 3))
    assert steps(1) == 1  # the prefill
    assert steps(2) == 1
    assert steps(1) == 2  # the third: an idle result after two decodes
    assert steps(3) == 3


def test_a_stuck_publisher_keeps_its_last_snapshot_while_the_rank_goes_on(rank):
    """What a router or a scraper reads is old; it is fresh again with the next snapshot after the end."""
    it = rank()
    it.scheduler.submit(Request(0, 80, 79, 50))
    it.step()
    before = it.page()
    it.reporter.publisher.stuck = True
    for _ in range(30):
        it.step()
    assert it.page() == before
    assert len(it.metrics.of("decode_pass")) == 30
    it.reporter.publisher.stuck = False
    assert it.page().num_used_tokens == 80 + 30


def test_a_prefill_server_shows_its_queues_and_its_last_transfer(rank):
    """Requests in flight hold KV and do not run; utilization is the dead -1; the batch in the forward is the running gauge."""
    it = rank(split=Split("prefill", handshake=0, peer=0))
    assert it.metrics.labels["engine_type"] == "prefill"
    it.scheduler.submit(Request(0, 80, 30, 9, arrived=1.0))
    it.scheduler.submit(Request(1, 20, 0, 9, arrived=9.0))
    it.scheduler.advance(2.0)
    it.step()
    it.reporter.turned(Turned(finished=[5], sent=[Sent(10**9, 0.05)], handshakes=[0.01], allocations=[0.02], failed=[6]))
    assert it.metrics.of("kv_sent") == [{"size": 10**9, "seconds": 0.05}]
    assert it.metrics.of("kv_prepared") == [{"handshake": 0.01, "allocation": 0.02}]
    assert it.metrics.of("transfers_failed") == [1]
    page = it.page()
    assert page.disaggregation is not None
    queues = (page.disaggregation.prefill_bootstrap_queue_reqs, page.disaggregation.prefill_inflight_queue_reqs)
    assert (page.disaggregation.mode, *queues) == ("prefill", 1, 1)
    assert page.disaggregation.kv_transfer_speed_gb_s == pytest.approx(20.0)
    assert page.disaggregation.kv_transfer_latency_ms == pytest.approx(50.0)
    assert (page.utilization, page.num_running_reqs, page.num_waiting_reqs) == (-1.0, 0, 1)
    assert (page.num_used_tokens, page.num_total_tokens, page.num_waiting_uncached_tokens) == (80, 100, 20)
    stats = it.metrics.of("log")[-1]
    assert (stats.num_running_reqs, stats.utilization, stats.num_prefill_inflight_queue_reqs) == (1, -1.0, 1)


def test_a_decode_server_shows_what_waits_for_room_and_for_kv(rank):
    """100 tokens are in transfer, 300 wait for room: total counts both, active neither, and the transfer's speed is not measured here."""
    it = rank(split=Split("decode", handshake=0.1, peer=5, reserved_tokens=400))
    it.scheduler.submit(Request(0, 100, 0, 9, arrived=1.0))
    it.scheduler.submit(Request(1, 300, 0, 9, arrived=1.0))
    it.reporter.turned(it.scheduler.advance(2.0))
    it.reporter.turned(Turned(sent=[Sent(10**9, 0.05)]))
    assert it.metrics.of("kv_sent") == []
    page = it.page()
    assert page.disaggregation == DisaggregationSection("decode", decode_prealloc_queue_reqs=1, decode_transfer_queue_reqs=1)
    assert page.queues == QueuesSection(prealloc_ready=1)
    assert (page.num_used_tokens, page.num_total_tokens, page.num_active_tokens) == (100, 400, 0)
    assert (page.num_prealloc_ready_tokens, page.num_waiting_reqs, page.num_waiting_uncached_tokens) == (300, 2, 0)


def test_an_engine_that_is_not_split_says_null(rank):
    """Every queue of the section is 0, and so is what awaits a transfer."""
    it = rank()
    it.scheduler.submit(Request(0, 80, 79, 9))
    page = it.page()
    assert page.disaggregation == DisaggregationSection("null")
    assert (page.num_waiting_reqs, page.num_total_tokens, page.num_active_tokens) == (1, 80, 80)


def test_a_rank_with_queued_work_and_no_batch_is_not_idle(rank):
    """No idle seconds, and a snapshot each 50 ms; a rank without any work counts the seconds and publishes each second."""
    it = rank(split=Split("decode", handshake=9e9))
    it.page()
    it.reporter.idle(0.01, it.scheduler, it.now)
    assert it.metrics.of("idle") == [0.01]
    first = it.reporter.publisher.written
    it.scheduler.submit(Request(0, 100, 0, 9, arrived=1.0))
    it.reporter.publisher.written -= 0.06
    it.reporter.idle(0.01, it.scheduler, it.now)
    assert it.metrics.of("idle") == [0.01]
    assert it.reporter.publisher.written >= first
