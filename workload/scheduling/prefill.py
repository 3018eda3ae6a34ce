"""What one step prefills, chunk by chunk, until its token budget, the queue or the room is used up. Pure; the same for every engine."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from workload.scheduling.request import Batch, Request

Admit = Callable[[int, list[Request]], Request | None]
Compute = Callable[[Request, int], None]


class Prefill(msgspec.Struct):
    """`pairs` are those of the computed `tokens`. `ended`: whose prefill is complete, so that the step makes their next token."""

    tokens: int = 0
    pairs: int = 0
    longest: int = 0  # context before a chunk, of the request that has most
    cached: int = 0  # prefix tokens of the requests whose prefill starts here
    ended: list[Request] = []
    started: list[Request] = []  # those that run for the first time
    first: list[Request] = []  # of `ended`: those without a token yet
    partial: Request | None = None  # begun, and not complete

    def batch(self, rows: tuple[Request, ...] = (), row_pairs: int = 0, gains: tuple[int, ...] = ()) -> Batch:
        """The step's batch, with decode rows that have `row_pairs` and get `gains` in it; there is something to run."""
        requests = (*self.ended, *rows)
        return Batch(
            "decode" if not self.tokens else "mixed" if rows else "extend",
            self.tokens + len(rows),
            self.pairs + row_pairs,
            self.longest,
            self.cached,
            requests,
            (*[1] * len(self.ended), *gains),
            first=tuple(self.first),
            last=tuple([r for r in requests if r.scheduled == r.output]),
            started=tuple(self.started),
            rows=len(rows),
            row_pairs=row_pairs,
        )


def prefill(budget: int, begun: Request | None, admit: Admit, compute: Compute | None = None) -> Prefill:
    """Prefills up to `budget` tokens: the rest of `begun`, then whom `admit` lets in, given what is left and who has ended before.

    `compute` hears of each request how many more tokens of its context come into the KV cache, cached ones included.
    """
    step = Prefill(partial=begun)
    while budget > 0 and (request := step.partial or admit(budget, step.ended)) is not None:
        step.partial = None
        before = request.filled
        if before == 0:
            request.filled = request.cached
            step.cached += request.cached
            if not request.scheduled:
                step.started.append(request)
        context = request.context
        length = min(budget, context - request.filled)
        step.tokens += length
        step.pairs += length * request.filled + length * (length + 1) // 2
        step.longest = max(step.longest, request.filled)
        request.filled += length
        if compute is not None:
            compute(request, request.filled - before)
        budget -= length
        if request.filled < context:
            step.partial = request
            break
        if not request.scheduled:
            step.first.append(request)
        request.scheduled += 1
        step.ended.append(request)
    return step
