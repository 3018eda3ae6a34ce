"""What becomes of a step's results: requests end, clients get their first tokens, ranks publish their load."""

from __future__ import annotations

from workload.config import ClusterConfig
from workload.reporter import IDLE_PUBLISH_SECONDS, STUCK_PUBLISH_SECONDS
from workload.scheduling.request import Turned
from workload.virtual_time.diary import Diary, Extend, Published
from workload.virtual_time.plan import Asked
from workload.virtual_time.rank import TRANSIT, Rank


class Results:
    """`finished`: requests that have ended; whoever reads it empties it. Rows are those of the diary, times are seconds."""

    def __init__(self, config: ClusterConfig, ranks: list[Rank]) -> None:
        self.finished: list[int] = []
        self.held = 0.0  # seconds for which the front end keeps what the ranks tell
        self._ranks = ranks
        self._every = config.engine.publish_every
        self._unanswered: dict[int, float] = {}  # requests without a token, and when they were sent
        # the loop that brings each rank's next snapshot, if every loop brings a quiet result, and the first of them all or one before it
        self._publish_at = [config.engine.publish_every - 1] * len(ranks)
        self.publishes = 0

    def sent(self, rid: int, now: float) -> None:
        self._unanswered[rid] = now

    def aborted(self, rids: list[int]) -> None:
        for rid in rids:
            self._unanswered.pop(rid, None)

    def book(self, diary: Diary, row: int, asked: Asked, launched: float, now: float) -> None:
        """Books the results of those batches of the step before that a scheduler has made; they were launched and are there then."""
        for rank, batch in asked:
            scheduler = rank.lane.scheduler
            result = scheduler.complete(batch)
            self.finished += result.finished
            if result.first:
                self._answer(diary, result.first, now)
            if (taken := scheduler.take_retracted()).requests:
                diary.retracted.append((row, rank.number, taken.requests, taken.input_tokens, taken.output_tokens))
            if batch.extends:
                rank.prefilled(batch, launched, now)
                diary.extends.append(Extend(row, rank.number, batch.tokens, batch.cached_tokens))
                self._publish_at[rank.number] += 1
                self.publish(diary, row, rank, now)
                continue
            if batch.width > 1:
                rank.verified(batch)
            if result.lost:
                diary.lost.append((row, rank.number, result.lost))

    def turned(self, diary: Diary, turned: Turned, now: float) -> None:
        """Books what came out of the queues between prefill and decode."""
        self._answer(diary, [*turned.first, *turned.finished], now)  # an answer of one token is told at once
        self.finished += turned.finished + turned.failed

    def publish_due(self, diary: Diary, row: int, now: float) -> None:
        """Publishes for whom it is time, at the end of a loop that brought results; nobody before loop `publishes`."""
        loop = diary.first + row
        for number, at in enumerate(self._publish_at):
            if at <= loop:
                self._publish_at[number] = loop + self._every
                self.publish(diary, row, self._ranks[number], now)
        self.publishes = min(self._publish_at)

    def nothing(self) -> None:
        """A loop brought no result, and none is counted."""
        self.publishes = 0
        self._publish_at = [at + 1 for at in self._publish_at]

    def idle(self, diary: Diary, row: int, now: float) -> None:
        """A sleep with nothing in flight and nothing to run has ended."""
        for rank in self._ranks:
            idle = rank.lane.scheduler.idle
            if idle:
                rank.log()
            else:
                diary.working.append((row, rank.number))
            if now - rank.published_at >= (IDLE_PUBLISH_SECONDS if idle else STUCK_PUBLISH_SECONDS):
                self.publish(diary, row, rank, now)

    def _answer(self, diary: Diary, rids: list[int], now: float) -> None:
        """Requests have their first token."""
        for rid in rids:
            if (sent := self._unanswered.pop(rid, None)) is not None:  # else it was told before a retraction
                told = now + TRANSIT + self.held
                diary.answered.append((told, told - sent))

    def publish(self, diary: Diary, row: int, rank: Rank, now: float) -> None:
        snapshot: Published = rank.snapshot(row, now, diary.first + row)
        if not rank.stuck:
            rank.published = snapshot
            diary.published.append(snapshot)
