"""One rank's scheduler: who runs in the next step. Pure: no clock, no process, no socket.

It follows SGLang with overlap scheduling: while anything can be prefilled the rank prefills, at most `chunk_tokens` a step, and its
own decodes stand still meanwhile, unless mixed prefill lets them ride along. The next step is scheduled before the result of the
one in flight is known, so a request's progress is counted when its step is scheduled, and its KV is freed when the result is in.
"""

from __future__ import annotations

from collections import deque

from workload.config import Limits
from workload.kv import KvPool
from workload.prefix import RankPrefixes
from workload.scheduling.admission import NewTokenRatio, needs
from workload.scheduling.prefill import prefill
from workload.scheduling.request import Batch, Queues, Request, Result, Retracted, Turned
from workload.scheduling.retraction import victim
from workload.scheduling.settings import EngineFlags
from workload.scheduling.speculation import Acceptance

__all__ = ["Batch", "Request", "Result", "Retracted", "Scheduler"]

_DEFAULTS = EngineFlags()
_NOTHING_RETRACTED = Retracted()


class Scheduler:
    """The scheduler of an engine that is not split. `seed` draws what speculation accepts."""

    def __init__(self, limits: Limits, flags: EngineFlags = _DEFAULTS, seed: int = 0) -> None:
        self._limits = limits
        self._flags = flags
        self.kv = KvPool(limits.kv_tokens)
        self.ratio = NewTokenRatio()
        self.prefixes = RankPrefixes(limits.prefix_tokens)
        self.acceptance = Acceptance(flags.speculation, seed) if flags.speculation else None
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._partial: Request | None = None  # admitted, its prefill not complete
        self._live: dict[int, Request] = {}
        self._retracted = _NOTHING_RETRACTED
        self._aborts = False  # whether there ever was one

    def submit(self, request: Request) -> None:
        if request.prompt + request.output > self.kv.capacity:
            raise ValueError(f"request {request.rid} can never fit: {request.prompt} + {request.output} tokens of {self.kv.capacity}")
        if request.prefix or request.keeps:
            request.cached = self.prefixes.arrived(request.rid, request.prefix, request.keeps, request.prompt, request.output)
        self._live[request.rid] = request
        self._enqueue(request)

    def count(self, steps: int) -> None:
        """Schedules so many decodes of all who run, as `decode` may, and tells nothing of them."""
        for request in self.running:
            request.scheduled += steps
            request.held += steps
        self.kv.take(steps * len(self.running))
        self.ratio.decoded(steps)

    def abort(self, rids: list[int]) -> None:
        self.prefixes.gone(rids)
        gone = {rid: self._live[rid] for rid in rids if rid in self._live}
        for request in gone.values():
            self._drop(request)
        self.waiting = deque(r for r in self.waiting if r.rid not in gone)
        self.running = [r for r in self.running if r.rid not in gone]
        if self._partial is not None and self._partial.rid in gone:
            self._partial = None

    def advance(self, now: float) -> Turned:  # noqa: ARG002  # the halves of a split engine need the time
        """Moves the queues between prefill and decode to `now` (monotonic seconds); an engine that is not split has none."""
        return Turned()

    def next_batch(self) -> Batch | None:
        """The next step's batch; None when this rank has nothing to run."""
        return self._extend() or self.decode()

    def complete(self, batch: Batch) -> Result:
        """Books the result of a step that has ended on the card."""
        first = [r.rid for r in batch.first if not r.aborted] if batch.first else []
        finished = [r.rid for r in batch.last if not r.aborted and self._ended(r)] if batch.last else []
        lost = sum([gain for r, gain in zip(batch.requests, batch.gains, strict=True) if r.aborted]) if self._aborts else 0
        self.prefixes.progressed(first, finished)
        if not self._live:
            self.ratio.idle()
        return Result(first, finished, sum(batch.gains) - lost, lost)

    @property
    def waiting_tokens(self) -> int:
        """Context of the queued requests that hold no KV yet."""
        return sum([r.context for r in self.waiting]) if self.waiting else 0

    @property
    def waiting_uncached_tokens(self) -> int:
        """Prompt tokens still to be prefilled, the rest of the chunked one included."""
        if not self.waiting and self._partial is None:  # as nearly always
            return 0
        rest = self._partial.context - self._partial.filled if self._partial else 0
        return sum([r.context - r.cached for r in self.waiting]) + rest

    @property
    def awaited_tokens(self) -> int:
        """Tokens, held or queued, whose KV has still to come over a link."""
        return 0

    @property
    def queues(self) -> Queues:
        """The queues between prefill and decode."""
        return Queues()

    @property
    def idle(self) -> bool:
        return not self._live

    def take_retracted(self) -> Retracted:
        taken, self._retracted = self._retracted, _NOTHING_RETRACTED
        return taken

    def _enqueue(self, request: Request) -> None:
        self.waiting.append(request)

    def _drop(self, request: Request) -> None:
        """Forgets an aborted or failed request; whoever calls takes it out of its queue."""
        del self._live[request.rid]
        self._aborts = True
        request.aborted = True  # a step in flight may still hold it
        self._release(request)

    def _ended(self, request: Request) -> bool:
        """All tokens of a request are there. Returns whether that is its end."""
        del self._live[request.rid]
        self._release(request)
        return True

    def _extend(self) -> Batch | None:
        if not self.waiting and self._partial is None:
            return None
        rows = len(self.running) if self._flags.mixed and self.kv.free >= len(self.running) else 0
        step = prefill(self._limits.chunk_tokens - rows, self._partial, lambda _, ended: self._admit(ended, rows))
        self._partial = step.partial
        if not step.tokens:
            return None
        if not rows:
            self.running += [r for r in step.ended if r.scheduled < r.output]
            return step.batch()
        ride = tuple(self.running)
        row_pairs, gains, _ = self._progress(ride)
        self.running = [r for r in (*ride, *step.ended) if r.scheduled < r.output]
        return step.batch(ride, row_pairs, gains)

    def _admit(self, joining: list[Request], rows: int) -> Request | None:
        """The head of the queue, if it fits beside what the running requests may still make and the joining ones will.

        A request that would be alone gets whatever there is: nothing else will ever free more.
        """
        if not self.waiting or len(self.running) + len(joining) >= self._limits.max_running_requests:
            return None
        request = self.waiting[0]
        free = self.kv.free - rows
        if self.running or joining:
            left = free - needs(request) - sum([r.output - r.scheduled for r in joining])
            if not self.ratio.leaves(left, self.running):
                return None
        elif request.context > free:
            return None
        self.waiting.popleft()
        self._hold(request, request.context)
        return request

    def decode(self, steps: int = 1) -> Batch | None:
        """A decode of all who run; None when there is none.

        It may be the last of `steps`, for all of which the pool has room, and before which nobody gets a last token and no draft is made.
        """
        width = self.acceptance.width if self.acceptance else 1
        self._make_room(width)
        if not self.running:
            return None
        batch = tuple(self.running)
        pairs, gains, accepted = self._progress(batch, steps)
        self.running = [r for r in batch if r.scheduled < r.output]
        last = () if len(self.running) == len(batch) else tuple([r for r in batch if r.scheduled == r.output])
        self.ratio.decoded(steps - 1)
        self.ratio.decoded()
        rows = len(batch)
        return Batch(
            "decode",
            rows,
            pairs,
            0,
            0,
            batch,
            gains,
            last=last,
            rows=rows,
            row_pairs=pairs,
            width=width,
            accepted=accepted,
        )

    def _progress(self, batch: tuple[Request, ...], steps: int = 1) -> tuple[int, tuple[int, ...], int]:
        """Schedules `steps` decodes of these requests. Returns the last one's pairs, tokens for each of them, and accepted drafts."""
        if self.acceptance is None:  # one token each
            self.kv.take(len(batch) * steps)
            pairs = -len(batch)
            for request in batch:
                request.held += steps
                request.scheduled += steps
                pairs += request.prompt + request.scheduled
            return pairs, (1,) * len(batch), 0
        pairs = accepted = 0
        gains = []
        for request in batch:
            pairs += request.context
            drafts = self.acceptance.draw()
            accepted += drafts
            gain = min(1 + drafts, request.to_come)
            self._hold(request, gain)
            request.scheduled += gain
            gains.append(gain)
        return pairs, tuple(gains), accepted

    def _make_room(self, width: int) -> None:
        """Takes requests back until the pool can hold what the others' next step may make."""
        before = len(self.running)
        while self.running and self.kv.free < width * len(self.running):
            self._retract(victim(self.running, self._flags.retract, speculative=self.acceptance is not None))
        if len(self.running) < before:
            self.ratio.retracted(self.running)

    def _retract(self, request: Request) -> None:
        """Takes the KV back; the request queues again behind all others, to be prefilled with what it has generated."""
        self.running.remove(request)
        self._release(request)
        was = self._retracted
        self._retracted = Retracted(was.requests + 1, was.input_tokens + request.prompt, was.output_tokens + request.scheduled)
        self._requeue(request)

    def _requeue(self, request: Request) -> None:
        request.filled = 0
        self.waiting.append(request)

    def _hold(self, request: Request, tokens: int) -> None:
        self.kv.take(tokens)
        request.held += tokens

    def _release(self, request: Request) -> None:
        self.kv.give_back(request.held)
        request.held = 0
