"""The scheduler of a prefill server: bootstrap queue -> waiting -> prefill -> in flight while the KV is sent -> gone."""

from __future__ import annotations

import random

from workload.config import Limits
from workload.device.roofline import Roofline
from workload.scheduler import Scheduler
from workload.scheduling.link import KvLink
from workload.scheduling.request import Queues, Request, Sent, Turned
from workload.scheduling.settings import EngineFlags, Split

KV_BYTES = int(Roofline().kv_read(1))  # of one token, all layers


class PrefillScheduler(Scheduler):
    """Every request makes one token here. It holds its KV until the link has sent all of it to the decode side."""

    def __init__(self, limits: Limits, flags: EngineFlags, split: Split, seed: int = 0) -> None:
        super().__init__(limits, flags, seed)
        self.link = KvLink(split.gb_per_second)
        self._split = split
        self._rng = random.Random(seed + 1)
        self._bootstrap: list[Request] = []
        self._inflight: dict[int, Request] = {}
        self._now = 0.0

    def submit(self, request: Request) -> None:
        request.output = 1
        super().submit(request)

    def advance(self, now: float) -> Turned:
        self._now = now
        turned = Turned()
        self._bootstrapped(now, turned)
        for transfer in self.link.advance(now):
            request, seconds = transfer.request, transfer.ended - transfer.since
            del self._inflight[request.rid]
            if self._rng.random() < self._split.failures:
                turned.failed.append(request.rid)
            else:
                turned.finished.append(request.rid)
                turned.sent.append(Sent(transfer.size, seconds))
                turned.stages.append(("prefill_transfer_kv_cache", seconds))
            del self._live[request.rid]
            self._release(request)
            self.prefixes.gone([request.rid])  # the answer is made, and kept, elsewhere
        return turned

    @property
    def waiting_tokens(self) -> int:
        return super().waiting_tokens + sum(r.context for r in self._bootstrap)

    @property
    def waiting_uncached_tokens(self) -> int:
        return super().waiting_uncached_tokens + sum(r.context - r.cached for r in self._bootstrap)

    @property
    def queues(self) -> Queues:
        return Queues(bootstrap=len(self._bootstrap), inflight=len(self._inflight))

    def _enqueue(self, request: Request) -> None:
        self._bootstrap.append(request)

    def _bootstrapped(self, now: float, turned: Turned) -> None:
        delay = self._split.handshake + self._split.peer
        for request in [r for r in self._bootstrap if r.arrived + delay <= now]:
            self._bootstrap.remove(request)
            self.waiting.append(request)
            turned.handshakes.append(self._split.handshake)
            turned.allocations.append(self._split.peer)
            turned.stages.append(("prefill_bootstrap", now - request.arrived))

    def _ended(self, request: Request) -> bool:
        self._inflight[request.rid] = request
        self.link.put(request, request.prompt * KV_BYTES, self._now)
        return False

    def _drop(self, request: Request) -> None:
        super()._drop(request)
        if request in self._bootstrap:
            self._bootstrap.remove(request)
        if self._inflight.pop(request.rid, None) is not None:
            self.link.drop(request)
