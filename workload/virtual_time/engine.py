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
from workload.reporter import DISPATCH_EVERY, IDLE_PUBLISH_SECONDS, STUCK_PUBLISH_SECONDS
from workload.scheduler import Batch
from workload.virtual_time.cards import Cards
from workload.virtual_time.diary import BLOCK, Diary, Extend, Published
from workload.virtual_time.hosts import WAKE, Array, HostTimes
from workload.virtual_time.rank import Rank
from workload.wire import Abort, RankOrder, Submit

TRANSIT = 0.5e-3  # seconds from the front end to a rank's process: a socket and a wake-up. The right size, not a measurement

Flush = Callable[[Diary, float, Array], None]


class Engine:
    """`flush` gets each full diary, the time at which it ends, and how much later each rank begins the next loop.

    `heard`: requests that have ended; whoever reads it empties it.
    """

    def __init__(self, config: ClusterConfig, flush: Flush) -> None:
        self.heard: list[int] = []
        self.held = 0.0  # seconds for which the front end keeps what the ranks tell
        self.cards = Cards(config)
        self.ranks = [Rank(config, r) for r in range(config.ranks)]
        self._lanes = [rank.lane for rank in self.ranks]
        self._flags = config.engine
        self._flush = flush
        self._rng = np.random.default_rng(config.seed + 4)
        self._diary = self._blank()
        self._rows = [0] * config.ranks  # of the next decode, unless a scheduler is asked
        self._pairs = [0] * config.ranks
        self._total = self._widest = 0  # sum and maximum of `_rows`
        self._due = 0  # the first loop in which some scheduler must be asked
        self._loop = 0
        self._steps = 0
        self._base = 0.0  # begin of the next loop
        self._free = [0.0] * config.ranks  # when each rank had launched the last step
        self._result = -math.inf  # when the result came that the last loop waited for
        self._flying: float | None = None  # end of the step in flight
        self._launched = 0.0  # when it was launched
        self._asked: list[tuple[Rank, Batch]] = []  # its batches that a scheduler has made: their results are booked one by one
        self._arrives = math.inf  # when the first letter on its way does
        self._unanswered: dict[int, float] = {}  # requests without a token, and when they were sent
        self._frozen = False
        self._disturbed = False  # some process may be
        self._graphs = True  # every rank votes for them
        self._publishes = 0  # the first loop with a snapshot to publish
        for rank in self.ranks:
            self._publish(rank, 0, 0.0)

    def post(self, rank: int, message: Submit | Abort | RankOrder, now: float) -> None:
        """Sends a message to a rank's process."""
        if isinstance(message, Submit):
            self._unanswered[message.rid] = now
        elif isinstance(message, Abort):
            for rid in message.rids:
                self._unanswered.pop(rid, None)
        self.ranks[rank].mail.append((now + TRANSIT, message))
        self.ranks[rank].aborts += isinstance(message, Abort)
        self._arrives = min(self._arrives, now + TRANSIT)

    def disturb(self) -> None:
        """Something was done to a process: one may be stopped from now on, or a group that was held up may go on."""
        self._disturbed = True
        self._frozen = False

    def run(self, until: float) -> float:
        """Runs the loops that begin before `until`, but no further than to the end of a request. Returns the time that has come."""
        while self._base < until and not self._frozen:
            if self._quiet():
                self._coast(min(until, self._arrives))
            else:
                self._iterate()
            if self.heard:
                return min(self._base, until)
        return until

    def close(self, now: float) -> None:
        """Hands over what has happened since the last full diary. The last thing to call."""
        until = min(self._base, now) if self._frozen else self._base
        self._flush(self._diary, until, np.zeros(len(self.ranks)))

    def _blank(self) -> Diary:
        return Diary(HostTimes(self._rng, len(self.ranks), BLOCK))

    def _iterate(self) -> None:
        diary = self._diary
        row = len(diary.base)
        if not self._meet(diary.hosts, row):
            self._frozen = True
            return
        asked, self._asked = self._asked, []
        if self._arrives <= self._base:
            self._take_in(asked)
        tokens, pairs, extending = self._schedule()
        was_flying, was_launched = self._flying, self._launched
        diary.base.append(self._base)
        self._launch(diary, row, tokens, pairs, extending)
        # from here on the loop waits for the result of the step before
        self._result = -math.inf if was_flying is None else was_flying
        self._base = max(self._ready, self._result) + WAKE
        if was_flying is None and self._flying is None:
            self._sleep(diary, row)
        self._process(diary, row, asked, was_launched)
        if was_flying is None:
            self._publishes = 0
            for rank in self.ranks:
                rank.publish_at += 1  # no result, none counted
        elif self._loop >= self._publishes:
            self._publish_due(row)
        self._loop += 1
        self._turn_page()

    def _quiet(self) -> bool:
        """Whether the next loop is a decode like the last one: nobody to be asked, nothing arrived."""
        return (
            self._loop < self._due
            and self._base < self._arrives
            and not self._disturbed
            and self._flying is not None
            and self._total > 0
            and self.cards.plain(self._widest)
        )

    def _coast(self, until: float) -> None:
        """`_iterate` for loops that are `_quiet`, up to the first one that begins at `until` or later, or needs more than counting.

        Only the first of them may find results to be booked one by one: of the step in flight, which a scheduler may have made. If a
        request ends with it, that loop is the last.
        """
        assert self._flying is not None
        diary, rows, total, flying = self._diary, self._rows, self._total, self._flying
        asked, self._asked = self._asked, []
        row = first = len(diary.base)
        last = min(BLOCK, row + self._due - self._loop)
        graph = self._graphs and self._widest <= self._flags.decode_graph_rows
        while row < last and self._base < until:
            diary.base.append(self._base)
            diary.pairs.append(self._pairs)
            seconds, level = self.cards.decode(total, max(self._pairs), graph=graph)
            self._pairs = list(map(add, self._pairs, rows))
            self._ready = self._base + diary.hosts.ready[row]
            self._result, free = flying, max(self._ready, flying)
            flying = free + seconds
            self._base = free + WAKE
            diary.end.append(flying)
            diary.level.append(level)
            self._steps += 1
            if self._steps % DISPATCH_EVERY == 0:
                diary.dispatched.append((row, self.cards.copies(total)))
            if asked:
                self._process(diary, row, asked, self._launched)
                asked = []
                if self.heard:
                    last = row + 1
            if self._loop >= self._publishes:
                self._publish_due(row)
            self._loop += 1
            row += 1
        diary.tokens += [rows] * (row - first)
        diary.graph += [graph] * (row - first)
        self._flying, self._launched, self._free = flying, self._ready, [self._ready] * len(self.ranks)
        self._turn_page()

    def _turn_page(self) -> None:
        """Hands over a full diary."""
        if self._diary.full:
            diary, self._diary = self._diary, self._blank()
            self._flush(diary, self._base, self._diary.hosts.begin[0])

    def _meet(self, hosts: HostTimes, row: int) -> bool:
        """Settles when this loop begins and every rank has launched. False: a stopped rank keeps it from ever ending."""
        if self._disturbed:
            self._disturbed = any(rank.disturbed for rank in self.ranks)
        if not self._disturbed:
            self._ready = self._base + hosts.ready[row]
            self._free = [self._ready] * len(self.ranks)
            return True
        processors, busy = [rank.processor for rank in self.ranks], [rank.busy for rank in self.ranks]
        base = hosts.disturbed(row, self._free, self._result, processors, busy)
        if base is None:
            return False
        for processor in processors:
            processor.forget(base)
        self._base = base
        self._ready = base + hosts.ready[row]
        self._free = (hosts.launched[row] + base).tolist()
        return True

    def _take_in(self, asked: list[tuple[Rank, Batch]]) -> None:
        """Reads the letters that have arrived; who got any is asked for the next batch."""
        ordered = False
        for rank in self.ranks:
            if rank.mail and rank.mail[0][0] <= self._base:
                rank.lane.due = self._loop
                # who is aborted gets nothing out of the step in flight
                if (flying := rank.lane.catch_up(self._loop, flying=rank.aborts > 0)) is not None:
                    asked.append((rank, flying))
                while rank.mail and rank.mail[0][0] <= self._base:
                    _, message = rank.mail.popleft()
                    rank.obey(message, self._base)
                    ordered = ordered or not isinstance(message, Submit | Abort)
        if ordered:
            self._disturbed = self._disturbed or any(rank.disturbed for rank in self.ranks)
            self._graphs = all(rank.votes for rank in self.ranks)
        self._arrives = min([rank.mail[0][0] for rank in self.ranks if rank.mail], default=math.inf)
        self._due = self._loop

    def _schedule(self) -> tuple[list[int], list[int], list[int]]:
        """Tokens and pairs of every rank's batch, and who extends."""
        tokens, pairs = self._rows, self._pairs
        after = list(map(add, pairs, tokens))
        extending: list[int] = []
        if self._loop >= self._due:
            tokens, pairs, rows = tokens.copy(), pairs.copy(), tokens.copy()
            for rank, lane in zip(self.ranks, self._lanes, strict=True):
                if lane.due <= self._loop:
                    lane.catch_up(self._loop)
                    r, batch = rank.number, lane.ask(self._loop)
                    rows[r], after[r] = lane.rows, lane.pairs
                    if batch is None:
                        tokens[r] = pairs[r] = 0
                    else:
                        tokens[r], pairs[r] = batch.tokens, batch.pairs
                        self._asked.append((rank, batch))
                        if batch.extends:
                            extending.append(r)
            self._due = min([lane.due for lane in self._lanes])
            self._rows, self._total, self._widest = rows, sum(rows), max(rows)
        self._pairs = after
        return tokens, pairs, extending

    def _launch(self, diary: Diary, row: int, tokens: list[int], pairs: list[int], extending: list[int]) -> None:
        diary.tokens.append(tokens)
        diary.pairs.append(pairs)
        total = sum(tokens)
        if not total:
            diary.end.append(math.nan)
            diary.graph.append(False)
            diary.level.append(math.nan)
            self._flying = None
            return
        graph = not extending and max(tokens) <= self._flags.decode_graph_rows and self._graphs
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

    def _sleep(self, diary: Diary, row: int) -> None:
        """Nothing was in flight and nothing is to run."""
        diary.idle.append((row, IDLE_SLEEP))
        self._base += IDLE_SLEEP
        self._free = [free + IDLE_SLEEP for free in self._free]
        for rank in self.ranks:
            idle = rank.lane.scheduler.idle
            if not idle:
                diary.working.append((row, rank.number))
            if self._base - rank.published_at >= (IDLE_PUBLISH_SECONDS if idle else STUCK_PUBLISH_SECONDS):
                self._publish(rank, row, self._base)

    def _process(self, diary: Diary, row: int, asked: list[tuple[Rank, Batch]], launched: float) -> None:
        """Books the results of those batches of the step before that a scheduler has made."""
        for rank, batch in asked:
            scheduler = rank.lane.scheduler
            result = scheduler.complete(batch)
            self.heard += result.finished
            for rid in result.first:
                if (sent := self._unanswered.pop(rid, None)) is not None:  # else it was told before a retraction
                    told = self._base + TRANSIT + self.held
                    diary.answered.append((told, told - sent))
            taken = scheduler.take_retracted()
            if taken.requests:
                diary.retracted.append((row, rank.number, taken.requests, taken.input_tokens, taken.output_tokens))
            if batch.extends:
                rank.prefilled(batch, launched, self._base)
                diary.extends.append(Extend(row, rank.number, batch.tokens, batch.cached_tokens))
                rank.publish_at += 1
                self._publish(rank, row, self._base)
            elif result.generated < batch.rows:
                diary.lost.append((row, rank.number, batch.rows - result.generated))

    def _publish_due(self, row: int) -> None:
        """Publishes for whom it is time, at the end of a loop."""
        for rank in self.ranks:
            if rank.publish_at <= self._loop:
                rank.publish_at = self._loop + self._flags.publish_every
                self._publish(rank, row, self._base)
        self._publishes = min([rank.publish_at for rank in self.ranks])

    def _publish(self, rank: Rank, row: int, at: float) -> None:
        snapshot: Published = rank.snapshot(row, at, self._loop)
        if not rank.stuck:
            rank.published = snapshot
            self._diary.published.append(snapshot)
