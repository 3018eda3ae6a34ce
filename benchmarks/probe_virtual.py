"""A probe of a cluster in virtual time: the rounds of `slowrank.probing` on the event clock, with the same schedulers, cards and traffic.

What it leaves out is HTTP and the noise of a machine's clocks, thousandths of a prompt of a second.
"""

from __future__ import annotations

import asyncio
import random

from diagnose import pinned
from slowrank import probing
from workload.config import ClusterConfig
from workload.crowd import Crowd
from workload.schedule import find
from workload.traffic import Shape
from workload.virtual_time.control import VirtualControl
from workload.virtual_time.engine import Engine
from workload.virtual_time.frontend import Frontend, VirtualLoop

WARM_S = 20.0  # of traffic before the first prompt


async def _tick() -> None:
    """Time passes up to the next timer: there must be one, also while everybody waits for an answer."""
    while True:  # noqa: ASYNC110  # a timer is what is wanted
        await asyncio.sleep(WARM_S)


class Probed:
    """A cluster with one card slower, if `severity`, that serves its traffic while ranks are asked in turn."""

    def __init__(self, config: ClusterConfig, rank: int, severity: float) -> None:
        self._config, self._slow, self._severity = config, rank, severity
        self._loop = VirtualLoop()
        self._engine = Engine(config, lambda *_: None)
        self._frontend = Frontend(config, self._engine, self._loop)
        self._rng = random.Random(config.seed)

    def probe(self, tokens: int) -> tuple[pinned.Verdict, float]:
        """The verdict, and the seconds of the cluster's time that it took."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            return runner.run(self._probe(tokens))

    async def _probe(self, tokens: int) -> tuple[pinned.Verdict, float]:
        async with asyncio.TaskGroup() as tasks:
            Crowd(self._config, self._frontend).start(tasks)
            tasks.create_task(_tick())
            self._loop.play(self._engine, self._frontend)
            if self._severity:
                control = VirtualControl(self._config, self._engine, self._frontend, self._loop)
                find("gpu_throttled").start(control, self._slow, self._severity)
            await asyncio.sleep(WARM_S)
            begun = self._loop.time()
            verdict = await self._rounds(tokens)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            return verdict, self._loop.time() - begun

    async def _rounds(self, tokens: int) -> pinned.Verdict:
        rounds: list[list[float]] = []
        ranks = range(self._config.ranks)
        while True:
            paces = {rank: await self._ask(rank, tokens) for rank in self._rng.sample(ranks, len(ranks))}
            rounds.append([paces[rank] for rank in ranks])
            verdict = pinned.judge(ranks, rounds)
            if verdict.outcome is not pinned.Outcome.MORE:
                return verdict

    async def _ask(self, rank: int, tokens: int) -> float:
        """Seconds per token of one prompt, then a pause as long as it took: as `probing.Engine.ask` and `probing.run`."""
        while (before := self._engine.ranks[rank].published) is None or before.waiting:  # noqa: ASYNC110  # as a prober looks
            await asyncio.sleep(probing.LOOK_S)
        answered, begun = asyncio.Event(), self._loop.time()
        self._frontend.send(Shape(prompt=tokens, cached=0, output=1), answered.set, pinned=rank)
        await answered.wait()
        seconds = self._loop.time() - begun
        while (after := self._engine.ranks[rank].published) is None or after.prefill_tokens - before.prefill_tokens < tokens:  # noqa: ASYNC110
            await asyncio.sleep(probing.LOOK_S / 5)
        await asyncio.sleep(seconds)
        return seconds / (after.prefill_tokens - before.prefill_tokens)
