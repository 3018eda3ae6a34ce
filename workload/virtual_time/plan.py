"""What the ranks run in each loop: counted on where that is known, asked of their schedulers where it is not."""

from __future__ import annotations

import math
from operator import add

from workload.scheduler import Batch
from workload.scheduling.request import Turned
from workload.virtual_time.rank import Rank
from workload.wire import Abort, RankOrder, Submit

Asked = list[tuple[Rank, Batch]]  # batches that a scheduler has made: their results are booked one by one


class Plan:
    """`rows` and `pairs`: the next decode of every rank, unless its scheduler is asked. `due`: the first loop in which one must be."""

    def __init__(self, ranks: list[Rank]) -> None:
        self.rows = [0] * len(ranks)
        self.pairs = [0] * len(ranks)
        self.total = self.widest = 0  # sum and maximum of `rows`
        self.due = 0
        self.arrives = math.inf  # when the first letter on its way does
        self.turned: list[Turned] = []  # what came and went between prefill and decode; whoever reads it empties it
        self._ranks = ranks
        self._lanes = [rank.lane for rank in ranks]

    def post(self, rank: int, message: Submit | Abort | RankOrder, arrives: float) -> None:
        """Puts a letter on its way."""
        self._ranks[rank].mail.append((arrives, message))
        self._ranks[rank].aborts += isinstance(message, Abort)
        self.arrives = min(self.arrives, arrives)

    def take_in(self, loop: int, now: float) -> tuple[Asked, bool]:
        """Reads the letters that have arrived; who got any is asked for the next batch.

        Returns batches in flight whose result must be booked one by one after all, and whether there were orders.
        """
        flying: Asked = []
        ordered = False
        for rank in self._ranks:
            mail = rank.mail
            if mail and mail[0][0] <= now:
                rank.lane.due = loop
                # who is aborted gets nothing out of the step in flight
                if (batch := rank.lane.catch_up(loop, flying=rank.aborts > 0)) is not None:
                    flying.append((rank, batch))
                while mail and mail[0][0] <= now:
                    _, message = mail.popleft()
                    rank.obey(message, now)
                    ordered = ordered or not isinstance(message, Submit | Abort)
        self.arrives = min([rank.mail[0][0] for rank in self._ranks if rank.mail], default=math.inf)
        self.due = loop
        return flying, ordered

    def schedule(self, loop: int, now: float) -> tuple[list[int], list[int], list[int], Asked]:
        """Tokens and pairs of every rank's batch, who extends, and what the schedulers were asked for.

        A decode counts one token per row, whatever speculation verifies and accepts.
        """
        tokens, pairs = self.rows, self.pairs
        self.pairs = after = list(map(add, pairs, tokens))
        extending: list[int] = []
        asked: Asked = []
        if loop < self.due:
            return tokens, pairs, extending, asked
        tokens, pairs, self.rows = tokens.copy(), pairs.copy(), tokens.copy()
        rows = self.rows
        for rank, lane in zip(self._ranks, self._lanes, strict=True):
            if lane.due <= loop:
                lane.catch_up(loop)
                if lane.split:
                    self.turned.append(rank.turn(now))
                r, batch = rank.number, lane.ask(loop)
                rows[r], after[r] = lane.rows, lane.pairs
                if batch is None:
                    tokens[r] = pairs[r] = 0
                else:
                    tokens[r], pairs[r] = batch.tokens, batch.pairs
                    asked.append((rank, batch))
                    if batch.extends:
                        extending.append(r)
        self.due = min([lane.due for lane in self._lanes])
        self.total, self.widest = sum(rows), max(rows)
        return tokens, pairs, extending, asked
