"""One engine's scheduler as vLLM's V1 does it: decodes first, then as much prefill as the step's token budget leaves. Pure.

Decodes never stand still for a prefill; they get slower in its company. KV is taken as it is computed and not for a whole prompt
at once, and when there is none left the request that came last gives its own back and waits at the head of the queue.
`limits.chunk_tokens` is the budget (--max-num-batched-tokens), decodes included.
"""

from __future__ import annotations

from collections import Counter

from workload.config import Limits
from workload.scheduler import Scheduler
from workload.scheduling.prefill import prefill
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
        self.running = [r for r in self.running if r.to_come]
        budget = self._limits.chunk_tokens - len(rows)
        admits = self._keep_partial(budget) and room
        step = prefill(budget, self._partial, lambda left, ended: self._let_in(ended, left) if admits else None, self._hold)
        self._partial = step.partial
        if not rows and not step.tokens:
            return None
        self.running += [r for r in step.ended if r.to_come]
        return step.batch(rows, row_pairs, gains)

    def _make_room_for_decodes(self) -> bool:
        """Preempts until each decode can have its token. False when one was: then nothing new is admitted in this step."""
        before = len(self.waiting)
        while self.running and self.kv.free < len(self.running):
            self._preempt(self._partial or self.running[-1])
        return len(self.waiting) == before

    def _keep_partial(self, budget: int) -> bool:
        """Preempts the request begun if its next chunk finds no KV. False then: nothing else is prefilled in this step."""
        begun = self._partial
        if begun is None or budget <= 0 or min(budget, begun.context - begun.filled) <= self.kv.free:
            return True
        self._preempt(begun)
        return False

    def _let_in(self, joining: list[Request], budget: int) -> Request | None:
        """The head of the queue, if there is a place and KV for its first chunk of a step that has `budget` tokens left."""
        if not self.waiting or len(self.running) + len(joining) >= self._limits.max_running_requests:
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
