"""One rank's scheduler: who runs in the next step. Pure: no clock, no process, no socket.

It follows SGLang with overlap scheduling and without mixed chunks: while anything can be prefilled the rank prefills, at most
`chunk_tokens` a step, and its own decodes stand still meanwhile. The next step is scheduled before the result of the one in
flight is known, so a request's progress is counted when its step is scheduled, and its KV is freed when the result is in.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from workload.config import Limits
from workload.kv import KvPool

# Share of the tokens still to be generated that admission keeps free. SGLang starts at 0.7 and multiplies by 0.3 under
# attention DP: it admits more than may fit, and takes requests back when it does not.
NEW_TOKEN_RATIO = 0.7 * 0.3


@dataclass(slots=True, eq=False)
class Request:
    """`prompt` tokens, the first `cached` of them in the prefix cache (they cost no prefill, but count as context), `output` to make."""

    rid: int
    prompt: int
    cached: int
    output: int
    arrived: float = 0.0
    scheduled: int = 0  # output tokens whose step has been scheduled
    produced: int = 0  # output tokens whose step has ended
    filled: int = 0  # context tokens whose KV is there or on its way
    held: int = 0  # KV tokens taken
    aborted: bool = False

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.output < 1:
            raise ValueError(f"a request of {self.prompt} prompt and {self.output} output tokens")
        self.cached = min(self.cached, self.prompt - 1)  # the last token is always computed: its output is the next token

    @property
    def context(self) -> int:
        """Tokens that the next step of this request attends to."""
        return self.prompt + self.scheduled


@dataclass(frozen=True, slots=True)
class Batch:
    """What one rank does in one step. `tokens` and `pairs` are what the metadata row reports (signals of dp_attention_*)."""

    mode: Literal["extend", "decode"]
    tokens: int
    pairs: int
    max_prefix: int
    cached_tokens: int  # prefix tokens of the requests whose prefill starts here
    requests: tuple[Request, ...]  # those that get a token out of this step
    started: tuple[Request, ...] = ()  # those that run for the first time


@dataclass(slots=True)
class Result:
    """What came out of a step."""

    first: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    generated: int = 0


@dataclass(frozen=True, slots=True)
class Retracted:
    """Taken back for want of KV since last asked."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Scheduler:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.kv = KvPool(limits.kv_tokens)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._partial: Request | None = None  # admitted, its prefill not complete
        self._live: dict[int, Request] = {}
        self._retracted = Retracted()

    def submit(self, request: Request) -> None:
        if request.prompt + request.output > self.kv.capacity:
            raise ValueError(f"request {request.rid} can never fit: {request.prompt} + {request.output} tokens of {self.kv.capacity}")
        self._live[request.rid] = request
        self.waiting.append(request)

    def abort(self, rids: list[int]) -> None:
        gone = {rid for rid in rids if rid in self._live}
        for rid in gone:
            request = self._live.pop(rid)
            request.aborted = True  # a step in flight may still hold it
            self._release(request)
        self.waiting = deque(r for r in self.waiting if r.rid not in gone)
        self.running = [r for r in self.running if r.rid not in gone]
        if self._partial is not None and self._partial.rid in gone:
            self._partial = None

    def next_batch(self) -> Batch | None:
        """The next step's batch; None when this rank has nothing to run."""
        return self._extend() or self._decode()

    def complete(self, batch: Batch) -> Result:
        """Books the result of a step that has ended on the card."""
        result = Result()
        for request in batch.requests:
            if request.aborted:
                continue
            request.produced += 1
            result.generated += 1
            if request.produced == 1:
                result.first.append(request.rid)
            if request.produced == request.output:
                del self._live[request.rid]
                self._release(request)
                result.finished.append(request.rid)
        return result

    @property
    def waiting_tokens(self) -> int:
        """Context of the queued requests."""
        return sum(r.context for r in self.waiting)

    @property
    def waiting_uncached_tokens(self) -> int:
        """Prompt tokens still to be prefilled, the rest of the chunked one included."""
        rest = self._partial.context - self._partial.filled if self._partial else 0
        return sum(r.context - r.cached for r in self.waiting) + rest

    @property
    def idle(self) -> bool:
        return not self._live

    def take_retracted(self) -> Retracted:
        taken, self._retracted = self._retracted, Retracted()
        return taken

    def _extend(self) -> Batch | None:
        budget = self._limits.chunk_tokens
        tokens = pairs = prefix_max = cached = 0
        out: list[Request] = []
        started: list[Request] = []
        while budget > 0:
            request = self._partial or self._admit(len(out))
            if request is None:
                break
            if request.filled == 0:
                request.filled = request.cached
                cached += request.cached
                if not request.scheduled:
                    started.append(request)
            length = min(budget, request.context - request.filled)
            tokens += length
            pairs += length * request.filled + length * (length + 1) // 2
            prefix_max = max(prefix_max, request.filled)
            request.filled += length
            budget -= length
            if request.filled < request.context:
                self._partial = request
                break
            self._partial = None
            request.scheduled += 1
            out.append(request)
        if not tokens:
            return None
        self.running += [r for r in out if r.scheduled < r.output]
        return Batch("extend", tokens, pairs, prefix_max, cached, tuple(out), tuple(started))

    def _admit(self, joining: int) -> Request | None:
        if not self.waiting or len(self.running) + joining >= self._limits.max_running_requests:
            return None
        request = self.waiting[0]
        to_come = sum(r.output - r.scheduled for r in (*self.running, request))
        alone = not self.running and not joining
        if request.context + (0 if alone else NEW_TOKEN_RATIO * to_come) > self.kv.free:
            return None
        self.waiting.popleft()
        self._hold(request, request.context)
        return request

    def _decode(self) -> Batch | None:
        while self.running and self.kv.free < len(self.running):
            self._retract(max(self.running, key=lambda r: r.context))
        if not self.running:
            return None
        batch = tuple(self.running)
        pairs = 0
        for request in batch:
            pairs += request.context
            self._hold(request, 1)
            request.filled += 1
            request.scheduled += 1
        longest = max(r.filled for r in batch)
        self.running = [r for r in batch if r.scheduled < r.output]
        return Batch("decode", len(batch), pairs, longest, 0, batch)

    def _retract(self, request: Request) -> None:
        """Takes the KV back; the request waits at the head of the queue, to be prefilled again with what it has generated."""
        self.running.remove(request)
        self._release(request)
        request.filled = 0
        self.waiting.appendleft(request)
        was = self._retracted
        self._retracted = Retracted(was.requests + 1, was.input_tokens + request.prompt, was.output_tokens + request.scheduled)

    def _hold(self, request: Request, tokens: int) -> None:
        self.kv.take(tokens)
        request.held += tokens

    def _release(self, request: Request) -> None:
        self.kv.give_back(request.held)
        request.held = 0
