"""The lockstep of `workload.lockstep` on an event clock: all ranks' loops and the cards, in one process.

Loop i begins when the hosts have launched step i-1 and the cards have ended step i-2, whose result the ranks waited for; so a whole step
of the cards covers the host's work on the next one. Hosts that nothing disturbs do as `HostTimes` has drawn; the cards set the pace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import add

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
        self._loop = 0
        self._diary = self._blank()
        self._steps = 0
        self._base = 0.0  # begin of the next loop
        self._ready = 0.0  # when all had launched the last step
        self._free: list[float] | None = None  # when each rank had, if not all are taken to have been ready then
        self._result = -math.inf  # when the result came that the last loop waited for
        self._flying: float | None = None  # end of the step in flight
        self._launched = 0.0  # when it was launched
        self._asked: Asked = []  # its batches that a scheduler has made
        self._frozen = False
        self._disturbed = False  # some process may be
        self._graphs = True  # every rank votes for them
        for rank in self.ranks:
            self.results.publish(self._diary, 0, rank, 0.0)

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
        self._frozen = False

    def run(self, until: float) -> float:
        """Runs the loops that begin before `until`, but no further than to the end of a request. Returns the time that has come."""
        finished, plan = self.results.finished, self._plan
        while self._base < until and not self._frozen:
            if self._diary.full:
                self._turn_page()  # not before: by now all that was to happen until the end of its last loop has happened
            if self._loop < plan.due and self._base < plan.arrives and self._quiet():
                self._coast(min(until, plan.arrives))
            else:
                self._iterate()
            if finished:
                return min(self._base, until)
        return until

    def close(self, now: float) -> None:
        """Hands over what has happened since the last full diary. The last thing to call."""
        if self._diary.full:
            self._turn_page()
        until = min(self._base, now) if self._frozen else self._base
        self._flush(self._diary, until, np.zeros(len(self.ranks)))

    def _blank(self) -> Diary:
        return Diary(self._loop, HostTimes(self._rng, len(self.ranks), BLOCK))

    def _iterate(self) -> None:
        diary, results = self._diary, self.results
        row = len(diary.base)
        if not self._meet(diary.hosts, row):
            self._frozen = True
            return
        asked = self._asked
        if self._plan.arrives <= self._base:
            asked += self._take_in()
        tokens, pairs, extending, self._asked = self._plan.schedule(self._loop, self._base)
        if self._plan.turned:
            for turned in self._plan.turned:
                results.turned(diary, turned, self._base)
            self._plan.turned.clear()
        if self._width > 1:
            gained = [0] * len(self.ranks)
            for rank, batch in self._asked:
                gained[rank.number] = sum(batch.gains)
            diary.gained += gained
        was_flying, was_launched = self._flying, self._launched
        diary.base.append(self._base)
        self._launch(diary, row, tokens, pairs, extending)
        # from here on the loop waits for the result of the step before
        self._result = -math.inf if was_flying is None else was_flying
        self._base = max(self._ready, self._result) + WAKE
        if was_flying is None and self._flying is None:
            diary.idle.append((row, IDLE_SLEEP))
            self._base += IDLE_SLEEP
            self._free = [free + IDLE_SLEEP for free in self._free or [self._ready] * len(self.ranks)]
            results.idle(diary, row, self._base)
        results.book(diary, row, asked, was_launched, self._base)
        if was_flying is None:
            results.nothing()
        elif self._loop >= results.publishes:
            results.publish_due(diary, row, self._base)
        self._loop += 1

    def _quiet(self) -> bool:
        """Whether the next loop, for which nobody is to be asked and nothing has arrived, is a decode like the last one."""
        plan = self._plan
        return not self._disturbed and self._flying is not None and plan.total > 0 and self.cards.plain(plan.widest)

    def _coast(self, until: float) -> None:
        """`_iterate` for loops that are `_quiet`, up to the first one that begins at `until` or later, or needs more than counting.

        Only the first of them may find results to be booked one by one: of the step in flight, which a scheduler may have made. If a
        request ends with it, that loop is the last.
        """
        assert self._flying is not None
        diary, plan, flying = self._diary, self._plan, self._flying
        rows, pairs, total = plan.rows, plan.pairs, plan.total
        decode, copies, ready = self.cards.decode, self.cards.copies, diary.hosts.ready
        results = self.results
        asked, self._asked = self._asked, []
        row = first = len(diary.base)
        last = min(BLOCK, row + plan.due - self._loop)
        graph = self._graphs and plan.widest <= self._graph_rows
        base, steps = self._base, self._steps
        while row < last and base < until:
            diary.base.append(base)
            diary.pairs += pairs
            seconds, level = decode(total, max(pairs), graph=graph)
            pairs = list(map(add, pairs, rows))
            launched = base + ready[row]
            self._result, free = flying, max(launched, flying)
            flying = free + seconds
            base = free + WAKE
            diary.end.append(flying)
            diary.level.append(level)
            steps += 1
            if steps % DISPATCH_EVERY == 0:
                diary.dispatched.append((row, copies(total)))
            if asked:
                results.book(diary, row, asked, self._launched, base)
                asked = []
                if results.finished:
                    last = row + 1
            if diary.first + row >= results.publishes:
                results.publish_due(diary, row, base)
            row += 1
        plan.pairs = pairs
        diary.tokens += rows * (row - first)
        diary.graph += [graph] * (row - first)
        self._loop += row - first
        self._base, self._steps, self._ready = base, steps, launched
        self._flying, self._launched, self._free = flying, launched, None

    def _turn_page(self) -> None:
        """Hands over the diary, which is full."""
        diary, self._diary = self._diary, self._blank()
        self._flush(diary, self._base, self._diary.hosts.begin[0])

    def _meet(self, hosts: HostTimes, row: int) -> bool:
        """Settles when this loop begins and every rank has launched. False: a stopped rank keeps it from ever ending."""
        if self._disturbed:
            self._disturbed = any(rank.disturbed for rank in self.ranks)
        if not self._disturbed:
            self._ready, self._free = self._base + hosts.ready[row], None
            return True
        processors, busy = [rank.processor for rank in self.ranks], [rank.busy for rank in self.ranks]
        free = self._free or [self._ready] * len(self.ranks)
        base = hosts.disturbed(row, free, self._result, processors, busy)
        if base is None:
            return False
        for processor in processors:
            processor.forget(base)
        self._base = base
        self._ready = base + hosts.ready[row]
        self._free = (hosts.launched[row] + base).tolist()
        return True

    def _take_in(self) -> Asked:
        """Reads the letters that have arrived. Returns batches in flight whose result is to be booked one by one after all."""
        flying, ordered = self._plan.take_in(self._loop, self._base)
        if ordered:
            self._disturbed = self._disturbed or any(rank.disturbed for rank in self.ranks)
            self._graphs = all(rank.votes for rank in self.ranks)
        return flying

    def _launch(self, diary: Diary, row: int, tokens: list[int], pairs: list[int], extending: list[int]) -> None:
        diary.tokens += tokens
        diary.pairs += pairs
        graph = not extending and max(tokens) <= self._graph_rows and self._graphs
        if self._width > 1:
            tokens = [n if r in extending else n * self._width for r, n in enumerate(tokens)]
        total = sum(tokens)
        if not total:
            diary.end.append(math.nan)
            diary.graph.append(False)
            diary.level.append(math.nan)
            self._flying = None
            return
        seconds, level = self.cards.step(tokens, total, pairs, extending, graph=graph)
        free = self._flying if self._flying is not None else -math.inf
        self._launched = self._ready
        self._flying = max(free, self._ready) + seconds
        self._steps += 1
        diary.end.append(self._flying)
        diary.graph.append(graph)
        diary.level.append(level)
        for r in extending:
            diary.extending.append((row, r))
        if self._steps % DISPATCH_EVERY == 0:
            diary.dispatched.append((row, self.cards.copies(total)))
