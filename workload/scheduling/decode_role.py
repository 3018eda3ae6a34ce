"""The scheduler of a decode server: prealloc queue until there is KV room -> transfer queue -> waiting -> running; never a prefill."""

from __future__ import annotations

import random
from collections import deque

from workload.config import Limits
from workload.scheduler import Scheduler
from workload.scheduling.link import KvLink
from workload.scheduling.prefill_role import KV_BYTES
from workload.scheduling.request import Batch, Queues, Request, Sent, Turned
from workload.scheduling.settings import EngineFlags, Split


class DecodeScheduler(Scheduler):
    """A request's first token comes with its KV from the prefill side. What is retracted keeps its KV in host memory and resumes
    when there is room again, before anything new gets some."""

    def __init__(self, limits: Limits, flags: EngineFlags, split: Split, seed: int = 0) -> None:
        super().__init__(limits, flags, seed)
        self.link = KvLink(split.gb_per_second)
        self._split = split
        self._rng = random.Random(seed + 1)
        self._prealloc: list[Request] = []
        self._transfer: dict[int, Request] = {}  # has room for its KV
        self._unsent: list[Request] = []  # of `_transfer`: not yet computed by the prefill side
        self._taken_back: deque[Request] = deque()
        self._since: dict[int, float] = {}  # rid: when it entered its present queue
        self._now = 0.0

    def submit(self, request: Request) -> None:
        if request.prompt + self._split.reserved_tokens > self.kv.capacity:
            raise ValueError(
                f"request {request.rid} can never fit: {request.prompt} tokens and {self._split.reserved_tokens} reserved "
                f"of {self.kv.capacity}"
            )
        super().submit(request)

    def advance(self, now: float) -> Turned:
        self._now = now
        turned = Turned()
        self._arrived(now, turned)
        self._resume()
        self._allocate(now, turned)
        for request in [r for r in self._unsent if self._computed(r) <= now]:
            self._unsent.remove(request)
            self.link.put(request, request.prompt * KV_BYTES, max(self._computed(request), self._since[request.rid]))
        return turned

    def next_batch(self) -> Batch | None:
        while self.waiting and len(self.running) < self._limits.max_running_requests:
            self.running.append(self.waiting.popleft())  # what SGLang calls a prebuilt batch: no forward
        return self.decode()

    @property
    def waiting_tokens(self) -> int:
        """Context of the prealloc and retracted queues: the other queued requests hold their KV."""
        return sum(r.context for r in (*self._prealloc, *self._taken_back))

    @property
    def waiting_uncached_tokens(self) -> int:
        return 0

    @property
    def awaited_tokens(self) -> int:
        return sum(r.prompt for r in (*self._prealloc, *self._transfer.values()))

    @property
    def queues(self) -> Queues:
        ready = [r for r in self._prealloc if r.arrived + self._split.handshake <= self._now]
        return Queues(
            prealloc=len(self._prealloc),
            transfer=len(self._transfer),
            retracted=len(self._taken_back),
            prealloc_ready=len(ready),
            prealloc_ready_tokens=sum(r.prompt for r in ready),
            early_tokens=sum(r.held for r in (*self._transfer.values(), *self.waiting)),
        )

    def _enqueue(self, request: Request) -> None:
        self._prealloc.append(request)

    def _computed(self, request: Request) -> float:
        return request.arrived + self._split.handshake + self._split.peer

    @property
    def _room(self) -> int:
        """Tokens for newcomers: what is free, less what is reserved for the answers of those that are in."""
        inside = len(self.running) + len(self._transfer) + len(self.waiting)
        return self.kv.free - self._split.reserved_tokens * inside

    def _arrived(self, now: float, turned: Turned) -> None:
        for transfer in self.link.advance(now):
            request = transfer.request
            del self._transfer[request.rid], self._since[request.rid]
            if self._rng.random() < self._split.failures:
                turned.failed.append(request.rid)
                self._drop(request)
                self.prefixes.gone([request.rid])
                continue
            turned.first.append(request.rid)
            turned.sent.append(Sent(transfer.size, transfer.ended - transfer.since))
            turned.stages.append(("decode_transferred", transfer.ended - transfer.since))
            request.scheduled = 1
            if request.output == 1:
                self._ended(request)
                self.prefixes.gone([request.rid])
                turned.finished.append(request.rid)
            else:
                self.waiting.append(request)

    def _resume(self) -> None:
        while self._taken_back and self._taken_back[0].context + self._split.reserved_tokens <= self._room:
            request = self._taken_back.popleft()
            self._hold(request, request.context)
            self.waiting.append(request)

    def _allocate(self, now: float, turned: Turned) -> None:
        while self._prealloc and not self._taken_back:
            request = self._prealloc[0]
            known = request.arrived + self._split.handshake
            if known > now or request.prompt + self._split.reserved_tokens > self._room:
                return
            self._prealloc.pop(0)
            self._hold(request, request.prompt)
            self._transfer[request.rid] = request
            self._unsent.append(request)
            self._since[request.rid] = now
            turned.handshakes.append(self._split.handshake)
            turned.allocations.append(now - known)
            turned.stages += [("decode_bootstrap", self._split.handshake), ("decode_prepare", now - request.arrived)]

    def _requeue(self, request: Request) -> None:
        self._taken_back.append(request)

    def _drop(self, request: Request) -> None:
        super()._drop(request)
        self._since.pop(request.rid, None)
        self._prealloc = [r for r in self._prealloc if r is not request]
        self._unsent = [r for r in self._unsent if r is not request]
        self._taken_back = deque(r for r in self._taken_back if r is not request)
        if self._transfer.pop(request.rid, None) is not None:
            self.link.drop(request)
