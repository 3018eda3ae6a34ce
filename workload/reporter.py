"""When a rank tells the world what: counters with each result, gauges and load snapshots on SGLang's own cadence.

The cadence has a trap that is kept on purpose: a rank that only runs idle batches beside busy peers never refreshes its gauges.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from workload.config import ClusterConfig
from workload.device import Ended
from workload.device.experts import SAMPLED_LAYERS, balancedness
from workload.device.roofline import Roofline
from workload.face.loads import DisaggregationSection, LoadSnapshot, MemorySection, QueuesSection, SnapshotWriter
from workload.face.metrics import ExpertMetrics, LoggedStats, SchedulerMetrics
from workload.scheduler import NEW_TOKEN_RATIO, Batch, Result, Scheduler

LOG_EVERY = 40  # decode results between two refreshes of the gauges (--decode-log-interval)
PUBLISH_EVERY = 15  # decode or idle results between two snapshots (--load-snapshot-publish-interval)
DISPATCH_EVERY = 20  # steps between two expert heat maps (SGLANG_EPLB_HEATMAP_COLLECTION_INTERVAL; 100 there)
IDLE_PUBLISH_SECONDS = 1.0  # a truly idle rank publishes when it wakes, at most this rarely (--sleep-on-idle)
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


class Reporter:
    def __init__(self, config: ClusterConfig, rank: int, loads_path: str) -> None:
        self._rank = rank
        self._limits = config.limits
        self.metrics = SchedulerMetrics(model_name=config.model_name, rank=rank, ranks=config.ranks)
        self._experts = ExpertMetrics(model_name=config.model_name, ranks=config.ranks) if rank == 0 else None
        self._writer = SnapshotWriter(loads_path, config.ranks, rank)
        kv_gb = Roofline().kv_read(config.limits.kv_tokens) / 1e9  # a full pool, read once
        self.metrics.constants(
            max_total_num_tokens=config.limits.kv_tokens,
            weight_gb=WEIGHT_GB,
            kv_cache_gb=round(kv_gb, 3),
            graph_gb=GRAPH_GB,
            page_size=PAGE_SIZE,
            context_len=CONTEXT_LEN,
        )
        self._memory = MemorySection(WEIGHT_GB, round(kv_gb, 3), GRAPH_GB, config.limits.kv_tokens)

        self._moments = [0.0] * 6
        self._last_decode: Step | None = None  # the previous launch, if it was a decode
        self._decodes = 0
        self._quiet_results = 0
        self._window_start = time.monotonic()
        self._window_tokens = 0
        self._forward_seconds = 0.0
        self._logged = self._window_start
        self._published = 0.0
        self._prefill_done = 0.0
        self._prefill_tokens = 0
        self._prefill_us = 0
        self._throughput = 0.0
        self._hit_rate = 0.0
        self._sum_seq_lens = 0
        self._gauge_running = 0

    def launched(self, step: Step | None) -> None:
        """Books a decode step's launch-to-launch gap; anything else in between breaks the chain."""
        batch = step.batch if step else None
        if step is None or batch is None or batch.mode != "decode":
            self._last_decode = None
            return
        if (last := self._last_decode) is not None and (gap := step.launched - last.launched) < GAP_LIMIT:
            b, t = float(batch.tokens), gap * 1e6
            for i, x in enumerate((1.0, b, t, b * b, b * t, b)):
                self._moments[i] += x
        self._last_decode = step

    def ended(self, step: Step, ended: Ended, result: Result, scheduler: Scheduler, now: float) -> None:
        """Books a step whose result is in; `now` in monotonic seconds."""
        metrics, batch = self.metrics, step.batch
        metrics.step(all_tokens=step.all_tokens, all_pairs=step.all_pairs, sync_wait=step.sync_wait)
        metrics.forward(batch.mode if batch else "idle", ended.span)
        self._forward_seconds += ended.span
        if self._experts is not None:
            self._report_experts(self._experts, step, ended)
        retracted = scheduler.take_retracted()
        if retracted.requests:
            metrics.retracted(requests=retracted.requests, input_tokens=retracted.input_tokens, output_tokens=retracted.output_tokens)
        if batch is not None and batch.mode == "extend":
            self._prefilled(step, batch, now)
            self._log(scheduler, now)
            self.publish(scheduler)
            return
        if batch is not None:
            metrics.decode_pass(graph=step.graph)
            metrics.realtime("decode", result.generated, step.prefill_ranks)
            self._sum_seq_lens = batch.pairs
            self._window_tokens += result.generated
            self._decodes += 1
            if self._decodes % LOG_EVERY == 0:
                self._throughput = self._window_tokens / (now - self._window_start)
                self._window_start, self._window_tokens = now, 0
                self._log(scheduler, now)
        self._quiet_results += 1
        if self._quiet_results % PUBLISH_EVERY == 0:
            self.publish(scheduler)

    def idle(self, seconds: float, scheduler: Scheduler, now: float) -> None:
        """Books a loop in which no rank had anything to run."""
        self.metrics.idle(seconds)
        if now - self._logged >= IDLE_LOG_SECONDS or self._gauge_running:
            self._throughput = 0.0
            self._log(scheduler, now)
        if time.time() - self._published >= IDLE_PUBLISH_SECONDS:
            self.publish(scheduler)

    def publish(self, scheduler: Scheduler) -> None:
        """Writes the load snapshot."""
        self._published = time.time()
        queued = scheduler.waiting_tokens
        used = scheduler.kv.used
        self._writer.write(
            LoadSnapshot(
                timestamp=self._published,
                dp_rank=self._rank,
                num_running_reqs=len(scheduler.running),
                num_waiting_reqs=len(scheduler.waiting),
                num_waiting_uncached_tokens=scheduler.waiting_uncached_tokens,
                num_used_tokens=used,
                num_total_tokens=used + queued,
                num_active_tokens=used + queued,
                max_total_num_tokens=self._limits.kv_tokens,
                max_running_requests=self._limits.max_running_requests,
                token_usage=used / self._limits.kv_tokens,
                gen_throughput=self._throughput,
                cache_hit_rate=self._hit_rate,
                total_prefill_uncached_tokens=self._prefill_tokens,
                total_prefill_busy_us=self._prefill_us,
                decode_moments=_six(self._moments) if self._moments[0] else None,
                memory=self._memory,
                disaggregation=DisaggregationSection(),
                queues=QueuesSection(waiting=len(scheduler.waiting)),
            )
        )

    def _prefilled(self, step: Step, batch: Batch, now: float) -> None:
        self.metrics.prefill_pass(graph=False)
        self.metrics.realtime("prefill_compute", batch.tokens, step.prefill_ranks)
        self.metrics.realtime("prefill_cache", batch.cached_tokens, step.prefill_ranks)
        self._hit_rate = batch.cached_tokens / (batch.cached_tokens + batch.tokens)
        self._prefill_tokens += batch.tokens
        # completion to completion within a burst of prefills, launch to completion at its head
        self._prefill_us += round((now - max(step.launched, self._prefill_done)) * 1e6)
        self._prefill_done = now

    def _report_experts(self, experts: ExpertMetrics, step: Step, ended: Ended) -> None:
        level = balancedness(ended.rows)
        if level is None:
            return
        experts.balancedness("extend" if step.prefill_ranks else "decode", level)
        if step.number % DISPATCH_EVERY == 0:
            for layer, rows in zip(SAMPLED_LAYERS, ended.rows, strict=True):
                experts.dispatched(layer, rows)

    def _log(self, scheduler: Scheduler, now: float) -> None:
        used, capacity = scheduler.kv.used, self._limits.kv_tokens
        self._gauge_running = len(scheduler.running)
        occupancy = min(100.0, 100 * self._forward_seconds / (now - self._logged)) if now > self._logged else 0.0
        self._logged, self._forward_seconds = now, 0.0
        self.metrics.log(
            LoggedStats(
                num_running_reqs=self._gauge_running,
                num_queue_reqs=len(scheduler.waiting),
                gen_throughput=self._throughput,
                cache_hit_rate=self._hit_rate,
                decode_sum_seq_lens=self._sum_seq_lens,
                token_usage=round(used / capacity, 2),
                full_token_usage=round(used / capacity, 2),
                num_used_tokens=used,
                kv_available_tokens=capacity - used,
                kv_used_tokens=used,
                fwd_occupancy=occupancy,
                new_token_ratio=NEW_TOKEN_RATIO,
            )
        )


def _six(x: list[float]) -> tuple[float, float, float, float, float, float]:
    return x[0], x[1], x[2], x[3], x[4], x[5]
