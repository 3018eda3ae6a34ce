"""What the ranks run in each loop: counted on where that is known, asked of their schedulers where it is not."""

from __future__ import annotations

import math
from collections import deque
from operator import add

from workload.scheduler import Batch
from workload.scheduling.request import Turned
from workload.virtual_time.rank import Rank
from workload.wire import Abort, RankOrder, Submit

Letter = Submit | Abort | RankOrder
_ABOUT_REQUESTS = {Submit, Abort}  # kinds of letters that are no orders
Asked = list[tuple[Rank, Batch]]  # batches that a scheduler has made: their results are booked one by one
# tokens of every rank's batch, their sum and maximum, pairs, who extends, and what the schedulers were asked for
Scheduled = tuple[list[int], int, int, list[int], list[int], Asked]


class Plan:
    """`rows` and `pairs`: the next decode of every rank, unless its scheduler is asked. `due`: the first loop in which one must be."""

    def __init__(self, ranks: list[Rank]) -> None:
        self.rows = [0] * len(ranks)
        self.pairs = [0] * len(ranks)
        self._total = self._widest = 0  # sum and maximum of `rows`
        self.due = 0
        self.arrives = math.inf  # when the first letter on its way does
        self.turned: list[Turned] = []  # what came and went between prefill and decode; whoever reads it empties it
        self._ranks = ranks
        self._dues = [rank.lane.due for rank in ranks]  # each rank's own
        self._letters: deque[tuple[float, int, Letter]] = deque()  # when each arrives, the first in front, and at which rank

    def post(self, rank: int, letter: Letter, arrives: float) -> None:
        """Puts a letter on its way, which arrives no earlier than those before it."""
        self._letters.append((arrives, rank, letter))
        self.arrives = self._letters[0][0]

    def take_in(self, loop: int, now: float) -> tuple[Asked, bool]:
        """Reads the letters that have arrived; who got any is asked for the next batch.

        Returns batches in flight whose result must be booked one by one after all, and whether there were orders.
        """
        letters = self._letters
        arrived: dict[int, list[Letter]] = {}
        while letters and letters[0][0] <= now:
            _, number, letter = letters.popleft()
            arrived.setdefault(number, []).append(letter)
        self.arrives = letters[0][0] if letters else math.inf
        flying: Asked = []
        ordered = False
        for number in sorted(arrived):
            rank, got = self._ranks[number], arrived[number]
            kinds = set(map(type, got))
            # who is aborted gets nothing out of the step in flight
            if (batch := rank.lane.catch_up(loop, flying=Abort in kinds)) is not None:
                flying.append((rank, batch))
            for letter in got:
                rank.obey(letter, now)
            ordered = ordered or not kinds <= _ABOUT_REQUESTS
            self._dues[number] = loop
        self.due = loop
        return flying, ordered

    def schedule(self, loop: int, now: float) -> Scheduled:
        """What every rank runs. A decode counts one token per row, whatever speculation verifies and accepts."""
        tokens, pairs = self.rows, self.pairs
        self.pairs = after = list(map(add, pairs, tokens))
        if loop < self.due:
            return tokens, self._total, self._widest, pairs, [], []
        extending: list[int] = []
        asked: Asked = []
        tokens, pairs, self.rows = tokens.copy(), pairs.copy(), tokens.copy()
        rows, dues = self.rows, self._dues
        for r, due in enumerate(dues):
            if due <= loop:
                rank = self._ranks[r]
                lane = rank.lane
                if lane.split:
                    self.turned.append(rank.turn(now))
                batch = lane.ask(loop)
                rows[r], after[r], dues[r] = lane.rows, lane.pairs, lane.due
                if batch is None:
                    tokens[r] = pairs[r] = 0
                else:
                    tokens[r], pairs[r] = batch.tokens, batch.pairs
                    asked.append((rank, batch))
                    if batch.extends:
                        extending.append(r)
        self.due = min(dues)
        self._total, self._widest = sum(rows), max(rows)
        return tokens, sum(tokens), max(tokens), pairs, extending, asked
