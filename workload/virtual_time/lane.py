"""One rank's scheduler, without asking it when the answer is known.

While nobody waits and nobody ends, a decode step adds one token to every running request. Such steps are counted, and given to the
scheduler together when something happens. Every decision is the scheduler's own. Under speculation nobody knows how many tokens a step
will make, and every one is asked for.
"""

from __future__ import annotations

from workload.scheduler import Batch, Scheduler

_NEVER = 1 << 62  # a step that is not reached


class Lane:
    """`rows` and `pairs`: what the next decode step is, while steps are only counted. `due`: the next step that must be asked for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.due = 0
        self.rows = 0
        self.pairs = 0
        self._counted_from = 0  # the first step that the scheduler has not heard of

    def used(self, step: int) -> int:
        """KV tokens in use once `step` is scheduled."""
        return self.scheduler.kv.used + self.rows * max(0, step + 1 - self._counted_from)

    def catch_up(self, step: int, *, flying: bool = False) -> Batch | None:
        """Tells the scheduler of the steps counted before `step`.

        With `flying` the batch of the last of them, whose result is still to come, is returned for `Scheduler.complete`, if it was
        counted; the others brought nobody's first or last token, and nothing is to be booked for them.
        """
        counted = step - self._counted_from
        self._counted_from = step
        if counted <= 0 or not self.rows:
            return None
        scheduler = self.scheduler
        for request in scheduler.running:
            request.scheduled += counted
            request.held += counted
        scheduler.kv.take(counted * self.rows)
        scheduler.ratio.decoded(counted)
        if not flying:
            return None
        requests = tuple(scheduler.running)
        rows, pairs = self.rows, self.pairs + (counted - 1) * self.rows
        return Batch("decode", rows, pairs, 0, 0, requests, (1,) * rows, rows=rows, row_pairs=pairs)

    def ask(self, step: int) -> Batch | None:
        """The scheduler's own batch for `step`; `catch_up` comes first."""
        batch = self.scheduler.next_batch()
        running = self.scheduler.running
        self.rows = rows = len(running)
        self.pairs = sum([r.prompt + r.scheduled for r in running])
        self._counted_from = step + 1
        if self.scheduler.waiting_uncached_tokens or (rows and self.scheduler.acceptance is not None):
            self.due = step + 1  # somebody is to be prefilled, or drafts are to be drawn
        elif not rows:
            self.due = _NEVER
        else:
            # the step in which somebody makes the last token, or for which the pool may not have room, is the scheduler's
            fits = 1 + max(0, self.scheduler.kv.free) // rows
            self.due = step + min(fits, *[r.output - r.scheduled for r in running])
        return batch
