"""When a rank tells the world what: counters with each result, gauges and load snapshots on SGLang's own cadence.

The cadence has a trap that is kept on purpose: a rank that only runs idle batches beside busy peers never refreshes its gauges.
A second one is kept too: decodes that run as extends, and decode rows of a mixed batch, are in no decode counter.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from workload.config import ClusterConfig
from workload.device import Ended
from workload.device.experts import SAMPLED_LAYERS, balancedness
from workload.device.roofline import Roofline
from workload.face.loads import MemorySection, SnapshotWriter
from workload.face.metrics import ExpertMetrics, LoggedStats, SchedulerMetrics
from workload.publisher import Figures, Publisher
from workload.scheduler import Batch, Result, Scheduler
from workload.scheduling.request import Turned

LOG_EVERY = 40  # decode results between two refreshes of the gauges (--decode-log-interval)
DISPATCH_EVERY = 20  # steps between two expert heat maps (SGLANG_EPLB_HEATMAP_COLLECTION_INTERVAL; 100 there)
IDLE_PUBLISH_SECONDS = 1.0  # a truly idle rank publishes when it wakes, at most this rarely (--sleep-on-idle)
STUCK_PUBLISH_SECONDS = 0.050  # one that has queued work and no batch
IDLE_LOG_SECONDS = 30.0
GAP_LIMIT = 2.0  # a pause this long between two decode launches is not a step (seconds)

WEIGHT_GB = 84.0
GRAPH_GB = 2.1
PAGE_SIZE = 64
CONTEXT_LEN = 262_144


@dataclass(frozen=True, slots=True)
class Step:
    """One launched step as one rank knows it: its own batch (None: an idle batch) and the exchanged loads of all ranks."""

    number: int
    batch: Batch | None
    all_tokens: list[int]
    all_pairs: list[int]
    prefill_ranks: int
    graph: bool
    sync_wait: float  # seconds in the metadata exchange
    launched: float  # monotonic seconds
    converted: bool = False  # decodes of this step run as extends of one token

    @property
    def decodes(self) -> bool:
        """Whether this rank's result is processed as a decode's."""
        return self.batch is not None and not self.batch.extends and not self.converted

    @property
    def category(self) -> str:
        """What its forward is booked as."""
        if self.batch is None:
            return "idle"
        if not self.decodes:
            return "extend"
        return "target_verify" if self.batch.width > 1 else "decode"


class Reporter:
    def __init__(self, config: ClusterConfig, rank: int, loads_path: str) -> None:
        self._limits = config.limits
        self._flags = config.engine
        kind = config.engine.engine_type
        self.metrics = SchedulerMetrics(model_name=config.model_name, rank=rank, ranks=config.ranks, engine_type=kind)
        self._experts = ExpertMetrics(model_name=config.model_name, ranks=config.ranks, engine_type=kind) if rank == 0 else None
        kv_gb = round(Roofline.of(config).kv_read(config.limits.kv_tokens) / 1e9, 3)  # a full pool, read once
        self.metrics.constants(
            max_total_num_tokens=config.limits.kv_tokens,
            weight_gb=WEIGHT_GB,
            kv_cache_gb=kv_gb,
            graph_gb=GRAPH_GB,
            page_size=PAGE_SIZE,
            context_len=CONTEXT_LEN,
        )
        memory = MemorySection(WEIGHT_GB, kv_gb, GRAPH_GB, config.limits.kv_tokens)
        self.publisher = Publisher(SnapshotWriter(loads_path, config.ranks, rank), rank, config.limits, config.engine.role, memory)
        self.figures = Figures()

        self._last_decode: Step | None = None  # the previous launch, if it was a decode
        self._decodes = 0
        self._quiet_results = 0
        self._window_start = time.monotonic()
        self._window_tokens = 0
        self._window_retracted = 0
        self._window_verified = 0
        self._window_accepted = 0
        self._accept_length = 0.0
        self._forward_seconds = 0.0
        self._logged = self._window_start
        self._prefill_done = 0.0
        self._prefilling = 0  # requests of the last prefill batch
        self._sum_seq_lens = 0
        self._gauge_running = 0

    def launched(self, step: Step | None) -> None:
        """Books a decode step's launch-to-launch gap; anything else in between breaks the chain."""
        batch = step.batch if step else None
        if step is None or batch is None or not step.decodes:
            self._last_decode = None
            return
        if (last := self._last_decode) is not None and (gap := step.launched - last.launched) < GAP_LIMIT:
            b, t = float(batch.rows), gap * 1e6
            for i, x in enumerate((1.0, b, t, b * b, b * t, float(sum(batch.gains)))):
                self.figures.moments[i] += x
        self._last_decode = step

    def ended(self, step: Step, ended: Ended, result: Result, scheduler: Scheduler, now: float) -> None:
        """Books a step whose result is in; `now` in monotonic seconds."""
        metrics, batch = self.metrics, step.batch
        metrics.step(all_tokens=step.all_tokens, all_pairs=step.all_pairs, sync_wait=step.sync_wait)
        metrics.forward(step.category, ended.span)
        self._forward_seconds += ended.span
        if self._experts is not None:
            self._report_experts(self._experts, step, ended)
        retracted = scheduler.take_retracted()
        if retracted.requests:
            self._window_retracted += retracted.requests
            metrics.retracted(requests=retracted.requests, input_tokens=retracted.input_tokens, output_tokens=retracted.output_tokens)
        if batch is not None and not step.decodes:
            self._extended(step, batch, now)
            if batch.extends:
                self._prefilled(step, batch)
                self._log(scheduler, now)
            self.publish(scheduler)
            return
        if batch is not None:
            self._decoded(step, batch, result, scheduler, now)
        self._quiet_results += 1
        if self._quiet_results % self._flags.publish_every == 0:
            self.publish(scheduler)

    def turned(self, turned: Turned) -> None:
        """Books what happened in the queues between prefill and decode."""
        for sent in turned.sent:
            gb_s = sent.size / 1e9 / sent.seconds if sent.seconds > 0 else 0.0
            self.figures.transfer_gb_s, self.figures.transfer_ms = gb_s, sent.seconds * 1e3
            if self._flags.role == "prefill":
                self.metrics.kv_sent(size=sent.size, seconds=sent.seconds)
        for handshake, allocation in zip(turned.handshakes, turned.allocations, strict=True):
            self.metrics.kv_prepared(handshake=handshake, allocation=allocation)
        for stage, seconds in turned.stages:
            self.metrics.request_stage(stage, seconds)
        if turned.failed:
            self.metrics.transfers_failed(len(turned.failed))

    def idle(self, seconds: float, scheduler: Scheduler, now: float) -> None:
        """Books a loop in which no rank had anything to run."""
        if scheduler.idle:
            self.metrics.idle(seconds)
        if now - self._logged >= IDLE_LOG_SECONDS or (self._gauge_running and scheduler.idle):
            self.figures.throughput = 0.0
            self._prefilling = 0
            self._log(scheduler, now)
        if time.time() - self.publisher.written >= (IDLE_PUBLISH_SECONDS if scheduler.idle else STUCK_PUBLISH_SECONDS):
            self.publish(scheduler)

    def publish(self, scheduler: Scheduler) -> None:
        """Writes the load snapshot."""
        self.publisher.publish(scheduler, self.figures)

    def _decoded(self, step: Step, batch: Batch, result: Result, scheduler: Scheduler, now: float) -> None:
        self.metrics.decode_pass(graph=step.graph)
        self.metrics.realtime("decode", result.generated, step.prefill_ranks)
        self._sum_seq_lens = batch.pairs
        self._window_tokens += result.generated
        if batch.width > 1:
            self._window_verified += batch.rows
            self._window_accepted += batch.accepted
            self.figures.verified += batch.rows
            self.figures.accepted += batch.accepted
        self._decodes += 1
        if self._decodes % LOG_EVERY == 0:
            self.figures.throughput = self._window_tokens / (now - self._window_start)
            self._window_start, self._window_tokens = now, 0
            self._log(scheduler, now)

    def _extended(self, step: Step, batch: Batch, now: float) -> None:
        """What every result of an extend is booked as, one that was a decode and the decode rows of a mixed one too."""
        self.figures.prefill_tokens += batch.tokens
        # completion to completion within a burst of prefills, launch to completion at its head
        self.figures.prefill_us += round((now - max(step.launched, self._prefill_done)) * 1e6)
        self._prefill_done = now

    def _prefilled(self, step: Step, batch: Batch) -> None:
        computed = batch.tokens - batch.rows
        self.metrics.prefill_pass(graph=step.graph)
        self.metrics.realtime("prefill_compute", computed, step.prefill_ranks)
        self.metrics.realtime("prefill_cache", batch.cached_tokens, step.prefill_ranks)
        self.figures.hit_rate = batch.cached_tokens / (batch.cached_tokens + computed)
        self._prefilling = len(batch.requests) or 1  # a chunk in the middle of a prompt brings no token

    def _report_experts(self, experts: ExpertMetrics, step: Step, ended: Ended) -> None:
        level = balancedness(ended.rows)
        if level is None:
            return
        experts.balancedness("extend" if step.prefill_ranks else "decode", level)
        if step.number % DISPATCH_EVERY == 0:
            for layer, rows in zip(SAMPLED_LAYERS, ended.rows, strict=True):
                experts.dispatched(layer, rows)

    def _log(self, scheduler: Scheduler, now: float) -> None:
        used, capacity, queues = scheduler.kv.used, self._limits.kv_tokens, scheduler.queues
        prefills = self._flags.role == "prefill"
        self._gauge_running = self._prefilling if prefills else len(scheduler.running)
        occupancy = min(100.0, 100 * self._forward_seconds / (now - self._logged)) if now > self._logged else 0.0
        self._logged, self._forward_seconds = now, 0.0
        self.figures.retracted, self._window_retracted = self._window_retracted, 0
        speculation = self._flags.speculation
        if speculation is not None and self._window_verified:
            self._accept_length = 1 + self._window_accepted / self._window_verified
            self.figures.accept_rate = self._window_accepted / (self._window_verified * speculation.steps)
            self._window_verified = self._window_accepted = 0
        self.metrics.log(
            LoggedStats(
                num_running_reqs=self._gauge_running,
                num_queue_reqs=len(scheduler.waiting),
                gen_throughput=self.figures.throughput,
                cache_hit_rate=self.figures.hit_rate,
                decode_sum_seq_lens=self._sum_seq_lens,
                token_usage=round(used / capacity, 2),
                full_token_usage=round(used / capacity, 2),
                num_used_tokens=used,
                kv_available_tokens=capacity - used,
                kv_used_tokens=used,
                spec_accept_length=self._accept_length,
                spec_accept_rate=self.figures.accept_rate,
                spec_num_steps=speculation.steps if speculation else 0,
                spec_num_draft_tokens=speculation.steps + 1 if speculation else 0,
                num_retracted_reqs=self.figures.retracted,
                num_prefill_bootstrap_queue_reqs=queues.bootstrap,
                num_prefill_inflight_queue_reqs=queues.inflight,
                num_decode_prealloc_queue_reqs=queues.prealloc,
                num_decode_transfer_queue_reqs=queues.transfer,
                prealloc_full_token_usage=round(queues.early_tokens / capacity, 2),
                utilization=-1.0 if prefills else 0.0,
                fwd_occupancy=occupancy,
                new_token_ratio=scheduler.ratio.value,
            )
        )
