"""The product end to end: a real multi-process workload, the real collector over HTTP, four windows, four verdicts.

The diagnosis gets windows and nothing else; what was injected stays in this file and in slowrank.score.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from collector import signals
from collector.errors import SlowrankError
from collector.intake import Intake
from collector.model import Window
from collector.scrape import Target, parse_target, scrape
from diagnose.engine import diagnose
from diagnose.model import Class
from slowrank.score import Score, Truth
from slowrank.terminal import Bar, bar, terminate_politely
from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.nursery import ClusterError

SIMULATED = "real processes, real exchanges, real HTTP; how long a step takes is simulated, no card is measured"
DEVICE: Final = "virtual"

TAKES_EFFECT = 3.0
"""Seconds after an injection that are not judged: batches in flight finish, the counters' one-second flush passes."""

COLLECT = 10.0
"""Seconds of each window: twice the least that a rule accepts."""

RECOVER = 2.0
"""Seconds after a fault is cleared before the next one: queues drain."""

WARM = 6.0
"""Seconds that a healthy workload needs until every rank's batch is filled."""

WARM_LIMIT = 20.0
"""Seconds after which a workload that is still not warm is broken, even on two cores."""

_TICK = 0.2


def acts(ranks: int) -> tuple[Truth, ...]:
    """Health first, for the baseline, then one fault of each class, on ranks that a smaller group has too."""
    return (
        Truth(Class.HEALTHY),
        Truth(Class.LOAD, "context_length_skew", 0),
        Truth(Class.SINGLE_POINT, "host_cpu_starved", min(5, ranks - 2)),
        Truth(Class.STRUCTURAL, "expert_hotspot", min(3, ranks - 1)),
    )


def play(ranks: int, seed: int, show: Callable[[Score], None], tell: Callable[[str], None]) -> list[Score]:
    """Start a workload, perform all acts on it, leave nothing behind. `show` gets each score at once, `tell` what happens now."""
    tell(f"starting {ranks} ranks on the {DEVICE} device: {SIMULATED}")
    try:
        with terminate_politely(), Cluster(ClusterConfig(ranks=ranks, seed=seed, device=DEVICE)) as cluster:
            return asyncio.run(Play(cluster, parse_target(cluster.url), show, tell, Intake()).perform(acts(ranks)))
    except ClusterError as error:
        raise SlowrankError(f"the workload failed: {error}") from error


@dataclass(slots=True)
class Play:
    """One demo on a running cluster."""

    cluster: Cluster
    target: Target
    show: Callable[[Score], None]
    tell: Callable[[str], None]
    intake: Intake

    async def perform(self, truths: tuple[Truth, ...]) -> list[Score]:
        """All acts. The collector runs from the first to the last second, as a sidecar would."""
        stop = asyncio.Event()
        collecting = asyncio.create_task(scrape([self.target], self.intake.feed, stop=stop))
        try:
            return await self._acts(truths, collecting)
        finally:
            stop.set()
            await asyncio.wait({collecting}, timeout=5.0)
            collecting.cancel()

    async def _acts(self, truths: tuple[Truth, ...], collecting: asyncio.Task[None]) -> list[Score]:
        await self._warm_up(collecting)
        scores: list[Score] = []
        baseline: Window | None = None
        for number, truth in enumerate(truths, 1):
            window = await self._act(truth, f"{number} of {len(truths)}", collecting)
            scores.append(Score(truth, diagnose(window, baseline)))
            baseline = baseline or window
            self.show(scores[-1])
            if truth.cause is not None and number < len(truths):
                self.tell(f"cleared; {RECOVER:.0f} s to recover")
                with bar("recovering", RECOVER) as progress:
                    await self._wait(RECOVER, progress, collecting)
        return scores

    async def _warm_up(self, collecting: asyncio.Task[None]) -> None:
        self.tell(f"waiting until every rank works (about {WARM:.0f} s)")
        started = time.monotonic()
        with bar("waiting until every rank works", WARM) as progress:
            while (passed := time.monotonic() - started) < WARM or not self._works():
                if passed > WARM_LIMIT:
                    raise SlowrankError(f"after {passed:.0f} s some rank still has no work: this machine is too busy; try --ranks 4")
                await self._wait(_TICK, progress, collecting, passed)

    def _works(self) -> bool:
        """Whether every rank runs requests."""
        if not self.intake.engines():
            return False
        window = self.intake.window(self.target.engine, 3.0)
        return len(window.ranks) == self.cluster.config.ranks and bool(np.all(window.mean(signals.RUNNING) >= 1.0))

    async def _act(self, truth: Truth, number: str, collecting: asyncio.Task[None]) -> Window:
        """Do what `truth` says and return the window in which it had its effect."""
        if truth.cause is None:
            return await self._read(f"{number}: nothing injected", 0.0, collecting)
        self.cluster.inject(truth.cause, rank=truth.rank)
        try:
            return await self._read(f"{number}: injected {truth}", TAKES_EFFECT, collecting)
        finally:
            self.cluster.clear()

    async def _read(self, doing: str, first: float, collecting: asyncio.Task[None]) -> Window:
        """The window of COLLECT seconds that begins `first` seconds from now."""
        self.tell(f"{doing}; {first:.0f} s to take effect, then reading {COLLECT:.0f} s" if first else f"{doing}; reading {COLLECT:.0f} s")
        with bar(doing, first + COLLECT) as progress:
            await self._wait(first + COLLECT, progress, collecting)
        return self.intake.window(self.target.engine, COLLECT)

    async def _wait(self, seconds: float, progress: Bar, collecting: asyncio.Task[None], done: float = 0.0) -> None:
        """Let time pass, but not past the death of the workload or of the collector."""
        started = time.monotonic()
        while (passed := time.monotonic() - started) < seconds:
            progress.at(done + passed)
            self.cluster.check()
            if collecting.done():
                collecting.result()
                raise SlowrankError("the collector ended before the demo did")
            await asyncio.sleep(min(_TICK, seconds - passed))
