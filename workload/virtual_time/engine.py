"""The lockstep of `workload.lockstep` on an event clock: all ranks' loops and the cards, in one process.

Loop i begins when the hosts have launched step i-1 and the cards have ended step i-2, whose result the ranks waited for; so a whole step
of the cards covers the host's work on the next one. Hosts that nothing disturbs do as `HostTimes` has drawn; the cards set the pace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import NoReturn

import numpy as np

from workload.config import ClusterConfig
from workload.lockstep import IDLE_SLEEP
from workload.reporter import DISPATCH_EVERY
from workload.virtual_time.cards import Cards
from workload.virtual_time.diary import BLOCK, Diary
from workload.virtual_time.hosts import WAKE, Array, HostTimes
from workload.virtual_time.plan import Asked, Plan
from workload.virtual_time.rank import TRANSIT, Rank
from workload.virtual_time.results import Results
from workload.wire import Abort, RankOrder, Submit

Flush = Callable[[Diary, float, Array], None]


class Engine:
    """`flush` gets each full diary, the time at which it ends, and how much later each rank begins the next loop."""

    def __init__(self, config: ClusterConfig, flush: Flush) -> None:
        self.cards = Cards(config)
        self.ranks = [Rank(config, r) for r in range(config.ranks)]
        self.results = Results(config, self.ranks)
        self._plan = Plan(self.ranks)
        self._graph_rows = config.engine.decode_graph_rows
        self._width = 1 if config.engine.speculation is None else config.engine.speculation.steps + 1  # tokens computed for a decode row
        self._flush = flush
        self._rng = np.random.default_rng(config.seed + 4)
        self._diary = self._blank(0)
        self._steps = 0
        self._base = 0.0  # begin of the next loop
        self._frozen = False
        self._disturbed = False  # some process may be
        self._graphs = True  # every rank votes for them
        for rank in self.ranks:
            self.results.publish(self._diary, 0, rank, 0.0)
        self._loops = self._work()
        next(self._loops)

    def post(self, rank: int, message: Submit | Abort | RankOrder, now: float) -> None:
        """Sends a message to a rank's process."""
        if isinstance(message, Submit):
            self.results.sent(message.rid, now)
        elif isinstance(message, Abort):
            self.results.aborted(message.rids)
        self._plan.post(rank, message, now + TRANSIT)

    def disturb(self) -> None:
        """Something was done to a process: one may be stopped from now on, or a group that was held up may go on."""
        self._disturbed = True

    def run(self, until: float) -> float:
        """Runs the loops that begin before `until`, but no further than to the end of a request. Returns the time that has come."""
        return self._loops.send(until)

    def close(self, now: float) -> None:
        """Hands over what has happened since the last full diary. The last thing to call."""
        if self._diary.full:
            self._turn_page()
        until = min(self._base, now) if self._frozen else self._base
        self._flush(self._diary, until, np.zeros(len(self.ranks)))

    def _blank(self, first: int) -> Diary:
        return Diary(first, HostTimes(self._rng, len(self.ranks), BLOCK))

    def _turn_page(self) -> None:
        """Hands over the diary, which is full."""
        diary, self._diary = self._diary, self._blank(self._diary.first + BLOCK)
        self._flush(diary, self._base, self._diary.hosts.begin[0])

    def _work(self) -> Generator[float, float, NoReturn]:
        """Loop after loop: told until when, it tells the time that has come. See `run`.

        All of it in one function, which goes on where it was with the state in its own variables: a second of simulation is tens of
        thousands of loops.
        """
        plan, results, finished, width = self._plan, self.results, self.results.finished, self._width
        launched = 0.0  # when all ranks had launched the last loop's step
        free: list[float] | None = None  # when each rank had, if something is disturbed
        result: float | None = None  # when the result came that the last loop waited for
        flying: float | None = None  # end of the step in flight
        asked: Asked = []  # its batches that a scheduler has made
        base, diary, ready, row = self._base, self._diary, self._diary.hosts.ready, 0
        until = yield base
        while True:
            while base >= until or finished:
                self._base = base
                until = yield min(base, until)
            if row == BLOCK:  # not before: by now all that was to happen until the end of its last loop has happened
                self._base = base
                self._turn_page()
                diary, ready, row = self._diary, self._diary.hosts.ready, 0
            loop = diary.first + row
            if self._disturbed:
                while (met := self._meet(row, base, free or [launched] * len(self.ranks), result)) is None:
                    self._base, self._frozen = base, True
                    until = yield until
                base, free = met
                self._frozen = False
            else:
                free = None
            was_launched, launched = launched, base + ready[row]
            if plan.arrives <= base:
                asked = [*asked, *self._take_in(loop, base)]
            tokens, total, widest, pairs, extending, made = plan.schedule(loop, base)
            diary.base.append(base)
            diary.tokens += tokens
            diary.pairs += pairs
            if plan.turned:
                for turned in plan.turned:
                    results.turned(diary, turned, base)
                plan.turned.clear()
            if width > 1:
                diary.gained += self._gains(made)
            # from here on the loop waits for the result of the step before
            result = flying
            begun = launched if result is None or launched > result else result
            if total:
                flying = begun + self._launch(diary, row, tokens, total, widest, pairs, extending)
                diary.end.append(flying)
            else:  # nobody has anything to run
                flying = None
                diary.end.append(math.nan)
                diary.graph.append(False)
                diary.level.append(math.nan)
            base = begun + WAKE
            if result is None and flying is None:
                diary.idle.append((row, IDLE_SLEEP))
                base += IDLE_SLEEP
                free = [at + IDLE_SLEEP for at in free or [launched] * len(self.ranks)]
                results.idle(diary, row, base)
            if asked:
                results.book(diary, row, asked, was_launched, base)
            asked = made
            if result is None:
                results.nothing()
            elif loop >= results.publishes:
                results.publish_due(diary, row, base)
            row += 1

    def _launch(self, diary: Diary, row: int, tokens: list[int], total: int, widest: int, pairs: list[int], extending: list[int]) -> float:
        """Seconds of the step on the cards. `total` and `widest` are the sum and the maximum of `tokens`."""
        graph = not extending and self._graphs and widest <= self._graph_rows
        if extending:
            diary.extending += [(row, r) for r in extending]
        if self._width > 1:
            tokens = [n if r in extending else n * self._width for r, n in enumerate(tokens)]
            total, widest = sum(tokens), max(tokens)
        seconds, level = self.cards.step(tokens, total, widest, pairs, extending, graph=graph)
        diary.graph.append(graph)
        diary.level.append(level)
        self._steps += 1
        if self._steps % DISPATCH_EVERY == 0:
            diary.dispatched.append((row, self.cards.copies(total)))
        return seconds

    def _gains(self, made: Asked) -> list[int]:
        """Tokens that each rank's decode makes."""
        gained = [0] * len(self.ranks)
        for rank, batch in made:
            gained[rank.number] = sum(batch.gains)
        return gained

    def _meet(self, row: int, base: float, free: list[float], result: float | None) -> tuple[float, list[float] | None] | None:
        """When a loop begins, of processes that may be disturbed, and when each rank has launched; the latter None if nothing is disturbed
        any more.

        `base`: when the loop would begin then; `free`: when each rank had launched the step before. None: a stopped rank keeps it from
        ever ending.
        """
        self._disturbed = any(rank.disturbed for rank in self.ranks)
        if not self._disturbed:
            return base, None
        hosts = self._diary.hosts
        processors, busy = [rank.processor for rank in self.ranks], [rank.busy for rank in self.ranks]
        began = hosts.disturbed(row, free, -math.inf if result is None else result, processors, busy)
        if began is None:
            return None
        for processor in processors:
            processor.forget(began)
        return began, (hosts.launched[row] + began).tolist()

    def _take_in(self, loop: int, now: float) -> Asked:
        """Reads the letters that have arrived. Returns batches in flight whose result is to be booked one by one after all."""
        flying, ordered = self._plan.take_in(loop, now)
        if ordered:
            self._disturbed = self._disturbed or any(rank.disturbed for rank in self.ranks)
            self._graphs = all(rank.votes for rank in self.ranks)
        return flying
