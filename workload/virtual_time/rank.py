"""One rank's process: its letters, its scheduler, and what it has to tell about itself."""

from __future__ import annotations

from workload.config import ClusterConfig
from workload.reporter import LOG_EVERY
from workload.scheduler import Batch, Request
from workload.scheduling.decode_role import DecodeScheduler
from workload.scheduling.make import make_scheduler
from workload.scheduling.prefill_role import PrefillScheduler
from workload.scheduling.request import Turned
from workload.virtual_time.diary import HandOver, Published
from workload.virtual_time.lane import Lane
from workload.virtual_time.processor import Processor
from workload.wire import Abort, AcceptFactor, Busy, GraphVote, KvLinkFactor, KvReserve, Publisher, RankOrder, Submit

TRANSIT = 0.5e-3  # seconds from the front end to a rank's process: a socket and a wake-up. The right size, not a measurement


class Rank:
    def __init__(self, config: ClusterConfig, number: int) -> None:
        self.number = number
        self.capacity = config.limits.kv_tokens
        self.lane = Lane(make_scheduler(config, number))
        self.processor = Processor()
        self.busy = 0.0  # CPU seconds that each scheduling pass burns
        self.votes = True  # for CUDA graphs
        self.stuck = False  # its load snapshots
        self.published: Published | None = None  # what the router reads
        self.published_at = 0.0
        self._prefill_done = 0.0
        self._prefill_tokens = 0
        self._prefill_us = 0
        self._hit_rate = 0.0
        self._drafts = 0 if config.engine.speculation is None else config.engine.speculation.steps  # per row
        self._decodes = 0
        self._verified = self._accepted = 0  # since the start
        self._window = (0, 0)  # what they were at the last log
        self._sent = (0.0, 0.0)  # the last KV transfer's GB/s and milliseconds, which only the side that sends measures
        self._accept_rate = 0.0

    @property
    def disturbed(self) -> bool:
        return self.busy > 0 or self.processor.disturbed

    def obey(self, message: Submit | Abort | RankOrder, now: float) -> None:
        """Does what a letter says. Raises ValueError for an order that only other engines or real time know."""
        scheduler = self.lane.scheduler
        match message:
            case Submit():
                scheduler.submit(Request.of(message, now))
            case Abort(rids):
                scheduler.abort(rids)
            case Busy(seconds):
                self.busy = seconds
            case GraphVote(allowed):
                self.votes = allowed
            case Publisher(stuck):
                self.stuck = stuck
            case KvReserve(tokens):
                scheduler.kv.reserve(tokens)
            case AcceptFactor(factor) if scheduler.acceptance is not None:
                scheduler.acceptance.factor = factor
            case KvLinkFactor(factor) if isinstance(scheduler, PrefillScheduler | DecodeScheduler):
                scheduler.link.factor = factor
            case _:
                raise ValueError(f"a rank in virtual time cannot obey {message}; run the cluster in real time for it")

    def prefilled(self, batch: Batch, launched: float, now: float) -> None:
        """Books an extend, launched and ended at these times."""
        self._prefill_tokens += batch.tokens
        # completion to completion within a burst of prefills, launch to completion at its head
        self._prefill_us += round((now - max(launched, self._prefill_done)) * 1e6)
        self._prefill_done = now
        self._hit_rate = batch.cached_tokens / (batch.cached_tokens + batch.tokens)
        if self._drafts:
            self.log()

    def turn(self, now: float) -> Turned:
        """Moves the queues of a split engine."""
        turned = self.lane.scheduler.advance(now)
        if turned.sent and isinstance(self.lane.scheduler, PrefillScheduler):
            size, seconds = turned.sent[-1].size, turned.sent[-1].seconds
            self._sent = size / 1e9 / seconds if seconds > 0 else 0.0, seconds * 1e3
        return turned

    def verified(self, batch: Batch) -> None:
        """Books a decode under speculation."""
        self._verified += batch.rows
        self._accepted += batch.accepted
        self._decodes += 1
        if self._decodes % LOG_EVERY == 0:
            self.log()

    def log(self) -> None:
        """Renews what the rank says of the time since it last logged. Of that it is the drafts that are played."""
        verified, accepted = self._verified - self._window[0], self._accepted - self._window[1]
        if verified:
            self._accept_rate = accepted / (verified * self._drafts)
            self._window = self._verified, self._accepted

    def snapshot(self, row: int, at: float, loop: int) -> Published:
        """What the rank would publish at the end of a loop."""
        self.published_at = at
        lane, scheduler = self.lane, self.lane.scheduler
        used = lane.used(loop)
        hand_over = self._hand_over(used) if lane.split else None
        # by position: by name it takes twice as long, and most snapshots are overwritten before anybody looks
        return Published(
            row,
            self.number,
            at,
            lane.rows,
            len(scheduler.waiting) if hand_over is None else len(scheduler.waiting) + scheduler.queues.requests,
            scheduler.waiting_uncached_tokens,
            used,
            used + scheduler.waiting_tokens,
            self._prefill_tokens,
            self._prefill_us,
            self._hit_rate,
            self._verified,
            self._accepted,
            self._accept_rate,
            hand_over,
        )

    def _hand_over(self, used: int) -> HandOver:
        scheduler = self.lane.scheduler
        q = scheduler.queues
        active = max(0, used + scheduler.waiting_tokens - scheduler.awaited_tokens)
        queues = (q.bootstrap, q.inflight, q.prealloc, q.transfer, q.retracted)
        return HandOver(active, q.prealloc_ready_tokens, *queues, *self._sent, len(scheduler.waiting), q.prealloc_ready)
