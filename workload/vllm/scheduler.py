"""One engine's scheduler as vLLM's V1 does it: decodes first, then as much prefill as the step's token budget leaves. Pure.

Decodes never stand still for a prefill; they get slower in its company. KV is taken as it is computed and not for a whole prompt
at once, and when there is none left the request that came last gives its own back and waits at the head of the queue.
`limits.chunk_tokens` is the budget (--max-num-batched-tokens), decodes included.
"""

from __future__ import annotations

from collections import Counter

from workload.config import Limits
from workload.scheduler import Scheduler
from workload.scheduling.request import Batch, Request


class VllmScheduler(Scheduler):
    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._preempted: Counter[int] = Counter()  # times since the request's last output

    def abort(self, rids: list[int]) -> None:
        super().abort(rids)
        self.take_preempted(rids)

    def take_preempted(self, rids: list[int]) -> list[tuple[int, int]]:
        """Those of `rids` that were preempted since last asked, and how many times."""
        return [(rid, self._preempted.pop(rid)) for rid in rids if rid in self._preempted]

    @property
    def unfinished(self) -> int:
        """Requests that hold or held a place in the running list and are not done: the gauge counts them until their last token is out."""
        return len(self._live) - len(self.waiting)

    def next_batch(self) -> Batch | None:
        room = self._make_room_for_decodes()
        rows = tuple(self.running[: self._limits.chunk_tokens])
        row_pairs, gains, _ = self._progress(rows)
        longest = max((r.filled for r in rows), default=0)
        self.running = [r for r in self.running if r.to_come]

        budget = self._limits.chunk_tokens - len(rows)
        tokens = pairs = cached = 0
        out: list[Request] = []
        started: list[Request] = []
        while budget > 0 and (request := self._next_prefill(budget, len(out), admit=room)) is not None:
            if request.filled == 0:
                request.filled = request.cached
                self._hold(request, request.cached)
                cached += request.cached
                if not request.scheduled:
                    started.append(request)
            length = min(budget, request.context - request.filled)
            self._hold(request, length)
            tokens += length
            pairs += length * request.filled + length * (length + 1) // 2
            longest = max(longest, request.filled)
            request.filled += length
            budget -= length
            if request.filled < request.context:
                self._partial = request
                break
            self._partial = None
            request.scheduled += 1
            out.append(request)
        if not rows and not tokens:
            return None
        self.running += [r for r in out if r.to_come]
        return Batch(
            "decode" if not tokens else "mixed" if rows else "extend",
            tokens + len(rows),
            pairs + row_pairs,
            longest,
            cached,
            requests=(*out, *rows),
            gains=(*(1 for _ in out), *gains),
            started=tuple(started),
            rows=len(rows),
            row_pairs=row_pairs,
        )

    def _make_room_for_decodes(self) -> bool:
        """Preempts until each decode can have its token. False when one was: then nothing new is admitted in this step."""
        before = len(self.waiting)
        while self.running and self.kv.free < len(self.running):
            self._preempt(self._partial or self.running[-1])
        return len(self.waiting) == before

    def _next_prefill(self, budget: int, joining: int, *, admit: bool) -> Request | None:
        """The request to prefill next: the one begun, else the head of the queue if there is a place and KV for its first chunk."""
        if (begun := self._partial) is not None:
            if min(budget, begun.context - begun.filled) <= self.kv.free:
                return begun
            self._preempt(begun)
            return None
        if not admit or not self.waiting or len(self.running) + joining >= self._limits.max_running_requests:
            return None
        request = self.waiting[0]
        if request.cached + min(budget, request.context - request.cached) > self.kv.free:
            return None
        return self.waiting.popleft()

    def _preempt(self, request: Request) -> None:
        if request is self._partial:
            self._partial = None
        else:
            self.running.remove(request)
        self._release(request)
        request.filled = 0
        self._preempted[request.rid] += 1
        self.waiting.appendleft(request)
