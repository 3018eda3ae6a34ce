"""One rank's scheduler, without asking it when the answer is known.

While nobody waits and nobody ends, a decode step adds one token to every running request. Such steps are counted, and given to the
scheduler together when something happens. Every decision is the scheduler's own. Under speculation nobody knows how many tokens a step
will make, and on a split engine not when a request comes over the link: there every step is asked for.
"""

from __future__ import annotations

from workload.scheduler import Batch, Scheduler
from workload.scheduling.decode_role import DecodeScheduler
from workload.scheduling.prefill_role import PrefillScheduler

_NEVER = 1 << 62  # a step that is not reached


class Lane:
    """`rows` and `pairs`: what the next decode step is, while steps are only counted. `due`: the next step that must be asked for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.split = isinstance(scheduler, PrefillScheduler | DecodeScheduler)
        self.due = 0
        self.rows = 0
        self.pairs = 0
        self._counted_from = 0  # the first step that the scheduler has not heard of
        self._left = _NEVER  # steps until the first of the running requests ends, once all is told

    def used(self, step: int) -> int:
        """KV tokens in use once `step` is scheduled."""
        return self.scheduler.kv.used + (self.rows * (step + 1 - self._counted_from) if step >= self._counted_from else 0)

    def catch_up(self, step: int, *, flying: bool = False) -> Batch | None:
        """Tells the scheduler of the steps counted before `step`.

        With `flying` the batch of the last of them, whose result is still to come, is returned for `Scheduler.complete`, if it was
        counted; the others brought nobody's first or last token, and nothing is to be booked for them.
        """
        counted, rows = step - self._counted_from, self.rows
        self._counted_from = step
        if not self._tell(counted) or not flying:
            return None
        requests, pairs = tuple(self.scheduler.running), self.pairs - rows
        return Batch("decode", rows, pairs, 0, 0, requests, (1,) * rows, rows=rows, row_pairs=pairs)

    def _tell(self, counted: int) -> bool:
        """Tells the scheduler of so many counted steps. Whether there were any."""
        if counted <= 0 or not self.rows:
            return False
        self.scheduler.count(counted)
        self.pairs += counted * self.rows
        self._left -= counted
        return True

    def ask(self, step: int) -> Batch | None:
        """The scheduler's own batch for `step`."""
        scheduler = self.scheduler
        counted, before = step - self._counted_from, self.rows
        self._counted_from = step + 1
        if counted > 0 and before and scheduler.kv.free >= before * (counted + 1):
            batch = scheduler.decode(counted + 1)  # nobody has come, or it would have been told of the steps before
        else:
            self._tell(counted)
            batch = scheduler.next_batch()
        running = scheduler.running
        self.rows = rows = len(running)
        if batch is None or not batch.extends or rows != before + len(batch.requests) - len(batch.last):
            self.pairs = sum([r.prompt + r.scheduled for r in running])
            self._left = min([r.output - r.scheduled for r in running], default=_NEVER)
        else:
            for new in running[before:]:  # nobody was aborted, and who runs stands still for this step
                self.pairs += new.prompt + new.scheduled
                self._left = min(self._left, new.output - new.scheduled)
        if scheduler.waiting_uncached_tokens or (rows and scheduler.acceptance is not None) or (self.split and not scheduler.idle):
            self.due = step + 1  # somebody is to be prefilled, drafts are to be drawn, or something may come over a link
        elif not rows:
            self.due = _NEVER
        else:
            # the step in which somebody makes the last token, or for which the pool may not have room, is the scheduler's
            fits = 1 + max(0, scheduler.kv.free) // rows
            self.due = step + min(fits, self._left)
        return batch
