"""Carries what is owed to each receiver, each on its own line: one that is slow or dead holds up no other. At least once, newest state.

A failure that can pass is retried for as long as it takes, with exponential back-off and full jitter; a receiver that is gone (410) is left
alone until it is configured as another place; a message that is refused is left until there is a newer one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from collector.model import Problem
from diagnose.alerts.desk import Desk
from diagnose.alerts.notification import Notification
from diagnose.alerts.receiver import Again, Answer, Delivered, Gone, Post, Receiver, Refused

FIRST_PAUSE = 1.0
"""s; the upper end of the first pause. It doubles with each failure."""

LONGEST_PAUSE = 60.0
"""s; a receiver that comes back hears within a minute, and one that stays dead costs a post in half a minute on average."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Line:
    """One receiver and how it goes with it. Counts are since the start."""

    receiver: Receiver
    failures: int = 0  # in a row
    not_before: float = -math.inf  # steady seconds
    problem: str = ""  # of the last try; empty when it went well
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("delivered", "again", "refused", "gone"), 0))
    news: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class LineStatus:
    """One receiver for a status page or an exporter."""

    receiver: str
    pending: int  # incidents whose newest state it does not have
    failures: int
    disabled: bool
    given_up: int
    counts: dict[str, int]


class Courier:
    """Delivers a desk's outbox. `steady` gives seconds that only go forward, `wall` unix seconds."""

    def __init__(
        self,
        desk: Desk,
        receivers: Sequence[Receiver],
        send: Callable[[Post], Awaitable[Answer]],
        *,
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        jitter: random.Random | None = None,
    ) -> None:
        self._desk, self._send, self._steady, self._wall = desk, send, steady, wall
        self._jitter = jitter or random.Random()  # noqa: S311 - spreads retries, protects nothing
        self.lines = tuple(Line(receiver) for receiver in receivers)
        desk.wake = self.wake

    def wake(self) -> None:
        """Something was posted."""
        for line in self.lines:
            line.news.set()

    async def run(self) -> None:
        """Deliver until cancelled. What is in flight then is sent again after the next start."""
        async with asyncio.TaskGroup() as group:
            for line in self.lines:
                group.create_task(self._serve(line))

    async def _serve(self, line: Line) -> None:
        while True:
            line.news.clear()
            pause = await self.turn(line)
            if pause > 0:
                try:
                    async with asyncio.timeout(None if math.isinf(pause) else pause):
                        await line.news.wait()
                except TimeoutError:
                    pass

    async def turn(self, line: Line) -> float:
        """Make one try if one is due; seconds until the next call is worth it, infinite if only news can make it so."""
        name, standing = line.receiver.name, line.receiver.standing
        if self._desk.disabled(line.receiver) is not None:
            return math.inf
        now = self._steady()
        if now < line.not_before:
            return line.not_before - now
        notice = self._desk.outbox.next(name, now, standing=standing)
        if notice is None:
            return self._desk.outbox.wait(name, now, standing=standing)
        self._take(line, notice, await self._try(line.receiver, notice))
        self._desk.outbox.settle(name, standing=standing)
        return max(0.0, line.not_before - self._steady())

    async def _try(self, receiver: Receiver, notice: Notification) -> Answer:
        try:
            post = receiver.post(notice, self._wall())
        except Exception as error:
            log.exception("alert %s for %s cannot be written", notice.incident, receiver.name)
            return Refused(f"it could not be written ({type(error).__name__}), which is a defect of slowrank")
        return await self._send(post)

    def _take(self, line: Line, sent: Notification, answer: Answer) -> None:
        name = line.receiver.name
        line.problem = "" if isinstance(answer, Delivered) else answer.why
        line.counts[type(answer).__name__.lower()] += 1
        match answer:
            case Delivered():
                line.failures, line.not_before = 0, -math.inf
                self._desk.outbox.delivered(name, sent, self._steady())
                self._desk.delivered(name, sent)
            case Again(why, after):
                pause = self._jitter.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(line.failures, 10)))
                line.failures += 1
                self._desk.outbox.failed(name, sent)
                line.not_before = self._steady() + max(pause, after or 0.0)
                log.warning("alert %s to %s: %s; try %d failed", sent.incident, name, why, line.failures)
            case Refused(why):
                line.failures, line.not_before = 0, -math.inf
                self._desk.outbox.refused(name, sent, self._steady())
                log.error("alert %s to %s: %s; it will not be sent again", sent.incident, name, why)
            case Gone(why):
                self._desk.disable(line.receiver, why)
                log.error("%s: %s; nothing is sent there until it is configured anew", name, why)

    def status(self) -> tuple[LineStatus, ...]:
        """How each receiver fares."""
        outbox = self._desk.outbox
        return tuple(
            LineStatus(
                line.receiver.name,
                len(outbox.pending(line.receiver.name)),
                line.failures,
                self._desk.disabled(line.receiver) is not None,
                outbox.given_up.get(line.receiver.name, 0),
                dict(line.counts),
            )
            for line in self.lines
        )

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with receivers now, and those that are owed an end but are not configured any longer."""
        found = []
        for line in self.lines:
            gone = self._desk.disabled(line.receiver)
            if gone is not None:
                found.append(Problem(line.receiver.name, gone, "nothing is sent there; configure the address that took its place"))
            elif line.problem:
                found.append(Problem(line.receiver.name, line.problem, "it is tried again" if line.failures else "see docs/alerts.md"))
        unknown = self._desk.outbox.holders() - {line.receiver.name for line in self.lines}
        for name in sorted(unknown):
            owed = len(self._desk.outbox.pending(name))
            if owed:
                found.append(
                    Problem(
                        name,
                        f"is not configured any longer, and was not told of {owed} incidents",
                        "configure it again, or end them there by hand",
                    )
                )
        return tuple(found)
