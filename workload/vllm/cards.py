"""Virtual cards that share no clock: each runs its own engine's steps, one after another."""

from __future__ import annotations

import random
import time

from workload.config import ClusterConfig
from workload.device import Work, catalogue
from workload.device.experts import ExpertLoad
from workload.device.fabric import Fabric
from workload.device.roofline import Roofline
from workload.device.state import HEALTHY
from workload.device.virtual import NOISE
from workload.vllm.dense import DENSE
from workload.wire import CardOrder, Channel, Done, Launch

_NO_ROWS = [[0.0]]  # no experts: no copies for this card


class IndependentCards:
    """All cards of a cluster of dense engines."""

    def __init__(self, config: ClusterConfig) -> None:
        self.stretch = 1.0
        self._roofline = Roofline(catalogue.find(config.card), DENSE).heavier(config.slowdown)
        self._states = [HEALTHY] * config.ranks
        self._rng = random.Random(config.seed + 1)
        self._launched: list[list[Launch]] = [[] for _ in range(config.ranks)]
        self._running: dict[int, Done] = {}
        self._ends = [0.0] * config.ranks  # of the running step, else of the last one; monotonic seconds

    @property
    def deadline(self) -> float | None:
        """When the next step ends (monotonic seconds); None when all cards stand still."""
        return min((self._ends[rank] for rank in self._running), default=None)

    def order(self, order: CardOrder) -> None:
        """Makes one card ill, or well; from its next step on."""
        self._states[order.rank] = self._states[order.rank].after(order)

    def launch(self, rank: int, message: Launch) -> None:
        self._launched[rank].append(message)
        self._start(rank)

    def ended(self, now: float) -> list[tuple[int, Done]]:
        """The steps that have ended by `now`, with their ranks. The next ones start, if they were launched."""
        over = [(rank, done) for rank, done in self._running.items() if self._ends[rank] <= now]
        for rank, _ in over:
            del self._running[rank]
            self._start(rank)
        return over

    def _start(self, rank: int) -> None:
        if rank in self._running or not self._launched[rank]:
            return
        m = self._launched[rank].pop(0)
        work = Work(m.decode_tokens, m.decode_pairs, m.prefill_tokens, m.prefill_pairs, graph=m.graph)
        seconds = self._roofline.step([work], _NO_ROWS, [self._states[rank]]) * self.stretch * (1 + self._rng.gauss(0, NOISE))
        self._ends[rank] = max(self._ends[rank], m.at) + seconds
        self._running[rank] = Done(m.step, seconds, [])


class IndependentFabric(Fabric):
    """The process that plays them."""

    def __init__(self, config: ClusterConfig, experts: ExpertLoad, control: Channel, channels: list[Channel]) -> None:
        self._own = IndependentCards(config)
        super().__init__(self._own, experts, control, channels)

    def run(self) -> None:
        while True:
            deadline = self._own.deadline
            for rank, message in self._wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                self._own.launch(rank, message)
            for rank, done in self._own.ended(time.monotonic()):
                self._channels[rank].send(done)
