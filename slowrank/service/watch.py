"""One engine under watch: its pages come in, and every few seconds its window is judged. One task each; nothing here knows of others."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from collector import scrape
from collector.intake import Intake
from collector.model import Page, Window
from diagnose import fleet
from diagnose.engine import diagnose
from diagnose.incident_model import State
from diagnose.model import Class, EngineDiagnosis, NoData, Severity
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service.cadence import INFO, METRICS, Cadence
from slowrank.service.counts import OF_ENGINE, Counts
from slowrank.service.keepsakes import STAMP_EVERY, Keepsakes
from slowrank.service.past import Past

DEPTH = 300.0
"""s of pages that are kept: five minutes, which holds six metrics pages at their slowest."""

PAGES = 6.0
"""Metrics pages that a window reaches over: rules ask for three intervals, and the first and last of a window are cut. 30 s at the default
of one each 5 s."""

KEPT_VERDICTS = 360
"""Verdicts remembered: an hour at the default of one each 10 s."""

INFO_LIMIT = 10.0
"""s for /server_info, which waits for all schedulers."""

STALE = 3.0
"""Intervals of /metrics after which a value is no longer shown, two pages having been missed."""

UP_FOR = 15.0
"""s without a usable page after which an engine is down: three loads pages at their slowest."""

RULE_FAILED = "the rule failed: "
"""How diagnose.engine begins the reason of a rule that raised."""


class Hear(Protocol):
    """Where verdicts go; the states of the engine's open incidents afterwards, of all that are more than notes."""

    def __call__(self, diagnosis: EngineDiagnosis) -> frozenset[State]: ...


@dataclass(frozen=True, slots=True)
class Said:
    """What is remembered of a verdict: a whole diagnosis is tens of kilobytes, this is one. Shares are of step time."""

    start: float  # unix seconds
    end: float
    klass: Class
    cause: str | None
    ranks: tuple[int, ...]
    share: float | None
    lost: float | None
    step_time: float | None  # s
    confidence: float
    summary: str

    @classmethod
    def of(cls, found: EngineDiagnosis) -> Said:
        """The verdict in short."""
        v = found.verdict
        share = None if v.share is None else v.share.mid
        summary = v.summary[:500]
        return cls(found.start, found.end, v.klass, v.cause, v.ranks, share, v.lost_time.share, found.step_time, v.confidence, summary)


@dataclass(frozen=True, slots=True)
class Look:
    """The newest window and what it says."""

    window: Window
    diagnosis: EngineDiagnosis


class Watch:
    """Reads and judges one engine until cancelled. Not safe for threads: one event loop owns it; `worker` runs the arithmetic."""

    def __init__(
        self,
        spec: EngineSpec,
        scraping: Scrape,
        judging: Diagnosis,
        hear: Hear,
        beside: Callable[[], Sequence[Window]],
        worker: Executor | None = None,
        keepsakes: Keepsakes | None = None,
    ) -> None:
        """`beside`: the newest windows of all engines, which may serve as twins. `keepsakes`: where the past outlives us."""
        self.spec = spec
        self.cadence = Cadence(scraping)
        self.counts = Counts()
        self.past = Past(judging.past_age, None if keepsakes is None else keepsakes.find(spec.name))
        self.look: Look | None = None
        self.verdicts: deque[Said] = deque(maxlen=KEPT_VERDICTS)
        self.diagnoses = 0
        self.cpu = 0.0  # s of diagnoses
        self.rule_failures: dict[str, int] = {}
        self.beat = time.monotonic()  # when it last showed that it lives
        self.intake = Intake(depth_s=max(DEPTH, 2 * judging.window), clock=spec.clock, gpus=dict(spec.gpus))
        self._judging, self._hear, self._beside, self._worker = judging, hear, beside, worker
        self._keepsakes, self._kept, self._stamped = keepsakes, self.past.serving, time.monotonic()

    async def run(self) -> None:
        """Until cancelled. What raises is a defect, and leaves."""
        stop = asyncio.Event()
        limit = self.cadence.wanted.timeout if self.spec.timeout is None else self.spec.timeout
        limits = {source: INFO_LIMIT if source is INFO else limit for source in self.cadence}
        async with asyncio.TaskGroup() as group:
            group.create_task(
                scrape.scrape(
                    [self.spec.target],
                    self._page,
                    intervals=self.cadence,
                    stop=stop,
                    timeouts=limits,
                    max_bytes=self.cadence.wanted.max_page_bytes,
                    trust=self.spec.reach.trust(),
                )
            )
            group.create_task(self._judge_forever())

    def _page(self, page: Page) -> None:
        self.cadence.saw(page)
        self.counts.note(page)
        self.intake.feed(page)

    async def _judge_forever(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + self._judging.every, time.monotonic())  # a verdict that took long is not followed by several at once
            await asyncio.sleep(due - time.monotonic())
            await self.judge()
            self.beat = time.monotonic()

    @property
    def window_seconds(self) -> float:
        """How much the next verdict looks at."""
        return min(max(self._judging.window, PAGES * self.cadence[METRICS]), max(DEPTH, self._judging.window))

    async def judge(self) -> None:
        """One verdict on what was read; none before the first page was asked for."""
        if self.spec.name not in self.intake.engines():
            return
        window = self.intake.window(self.spec.name, self.window_seconds)
        past = self.past.baseline(window.end)
        twins = () if past is not None else fleet.twins(window, self._beside())
        found, cpu = await asyncio.get_running_loop().run_in_executor(self._worker, _timed, window, past, twins)
        self.diagnoses += 1
        self.cpu += cpu
        for said in found.outcomes:
            if isinstance(said.outcome, NoData) and said.outcome.why.startswith(RULE_FAILED):
                self.rule_failures[said.rule] = self.rule_failures.get(said.rule, 0) + 1
        if self.look is None or window.end > self.look.window.end:
            self.verdicts.append(Said.of(found))
        self.look = Look(window, found)
        states = self._hear(found)
        self.cadence.suspected = State.SUSPECTED in states
        self.past.note(
            window,
            healthy=found.verdict.klass is Class.HEALTHY,
            noted=found.verdict.cause is not None and found.verdict.severity is Severity.NOTE,
            open_=states,
            reach=lambda seconds: self.intake.window(self.spec.name, seconds, end=window.end),
        )
        await self._keep()

    async def _keep(self) -> None:
        """The past that serves now, on disk too."""
        serving, now = self.past.serving, time.monotonic()
        if self._keepsakes is None or serving is None:
            return
        if serving is not self._kept:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._keepsakes.keep, self.spec.name, serving)
        elif now - self._stamped >= STAMP_EVERY:
            self._keepsakes.stamp(self.spec.name)
        else:
            return
        self._kept, self._stamped = serving, now

    def up(self, now: float) -> bool:
        """Whether usable pages come. `now`: unix seconds."""
        age = self.age(now)
        return age is not None and age <= max(UP_FOR, STALE * self.cadence[METRICS])

    def age(self, now: float) -> float | None:
        """s since the newest usable page of any source; None before the first. `now`: unix seconds."""
        seen = [pages.good for (_, source), pages in self.counts.pages.items() if source in OF_ENGINE and pages.good is not None]
        return now - max(seen) if seen else None


def _timed(window: Window, past: Window | None, twins: Sequence[Window]) -> tuple[EngineDiagnosis, float]:
    """The diagnosis, and the seconds of CPU that it took."""
    start = time.thread_time()
    return diagnose(window, past, twins=twins), time.thread_time() - start
