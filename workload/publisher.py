"""A rank's load snapshot: what is in it, and the pen that may get stuck."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from workload.config import Limits
from workload.face.loads import (
    DisaggregationSection,
    LoadSnapshot,
    MemorySection,
    QueuesSection,
    SnapshotWriter,
    SpeculativeSection,
)
from workload.scheduler import Scheduler
from workload.scheduling.settings import Role


@dataclass(slots=True)
class Figures:
    """What the reporter has counted that a scheduler does not know."""

    moments: list[float] = field(default_factory=lambda: [0.0] * 6)  # see LoadSnapshot.decode_moments
    throughput: float = 0.0  # tokens/s of the last decode log window
    hit_rate: float = 0.0  # of the last prefill report
    prefill_tokens: int = 0
    prefill_us: int = 0
    retracted: int = 0  # in the last log window
    verified: int = 0  # rows verified by speculation, since the start
    accepted: int = 0  # drafts accepted, since the start
    accept_rate: float = 0.0  # in the last log window
    transfer_gb_s: float = 0.0  # of the last KV transfer
    transfer_ms: float = 0.0


class Publisher:
    """Writes snapshots until it is `stuck`; the rank does not notice."""

    def __init__(self, writer: SnapshotWriter, rank: int, limits: Limits, role: Role, memory: MemorySection) -> None:
        self.stuck = False
        self.written = 0.0  # unix seconds of the last snapshot, had it not been stuck
        self._writer = writer
        self._rank = rank
        self._limits = limits
        self._role = role
        self._memory = memory

    def publish(self, scheduler: Scheduler, figures: Figures) -> None:
        self.written = time.time()
        if not self.stuck:
            self._writer.write(self.snapshot(scheduler, figures, self.written))

    def snapshot(self, scheduler: Scheduler, figures: Figures, now: float) -> LoadSnapshot:
        """The rank's load at `now`, unix seconds."""
        queues, used, f = scheduler.queues, scheduler.kv.used, figures
        total = used + scheduler.waiting_tokens
        prefills = self._role == "prefill"
        return LoadSnapshot(
            timestamp=now,
            dp_rank=self._rank,
            num_running_reqs=len(scheduler.running),
            num_waiting_reqs=len(scheduler.waiting) + queues.requests,
            num_waiting_uncached_tokens=scheduler.waiting_uncached_tokens,
            num_used_tokens=used,
            num_total_tokens=total,
            num_active_tokens=max(0, total - scheduler.awaited_tokens),
            num_prealloc_ready_tokens=queues.prealloc_ready_tokens,
            max_total_num_tokens=self._limits.kv_tokens,
            max_running_requests=self._limits.max_running_requests,
            token_usage=used / self._limits.kv_tokens,
            gen_throughput=f.throughput,
            cache_hit_rate=f.hit_rate,
            utilization=-1.0 if prefills else 0.0,
            total_prefill_uncached_tokens=f.prefill_tokens,
            total_prefill_busy_us=f.prefill_us,
            decode_moments=_six(f.moments) if f.moments[0] else None,
            memory=self._memory,
            speculative=SpeculativeSection((f.verified + f.accepted) / f.verified, f.accept_rate) if f.verified else None,
            disaggregation=DisaggregationSection(
                mode=self._role,
                prefill_bootstrap_queue_reqs=queues.bootstrap,
                prefill_inflight_queue_reqs=queues.inflight,
                decode_prealloc_queue_reqs=queues.prealloc,
                decode_transfer_queue_reqs=queues.transfer,
                decode_retracted_queue_reqs=queues.retracted,
                kv_transfer_speed_gb_s=f.transfer_gb_s if prefills else 0.0,  # the receiving side does not measure it
                kv_transfer_latency_ms=f.transfer_ms if prefills else 0.0,
            ),
            queues=QueuesSection(waiting=len(scheduler.waiting), retracted=f.retracted, prealloc_ready=queues.prealloc_ready),
        )


def _six(x: list[float]) -> tuple[float, float, float, float, float, float]:
    return x[0], x[1], x[2], x[3], x[4], x[5]
