"""Virtual cards: a step takes as long as the roofline says. One process plays them all, so they run on while a host process is stopped."""

from __future__ import annotations

import random
import socket
import time

from workload.config import ClusterConfig
from workload.device import Ended, Work
from workload.device.experts import ExpertLoad
from workload.device.roofline import Roofline
from workload.device.state import HEALTHY
from workload.wire import CardOrder, Channel, Done, Launch

NOISE = 0.015  # spread of a step's duration; clocks and memory refresh make real steps scatter by 1 to 2 %


class VirtualDevice:
    """A rank's end of the wire to its card."""

    def __init__(self, sock: socket.socket) -> None:
        self._channel = Channel(sock, Done)

    def launch(self, step: int, work: Work) -> None:
        launch = Launch(
            step, time.monotonic(), work.decode_tokens, work.decode_pairs, work.prefill_tokens, work.prefill_pairs, graph=work.graph
        )
        self._channel.send(launch)

    def wait(self) -> Ended:
        done: Done = self._channel.receive()
        return Ended(done.span, done.rows)


class VirtualCards:
    """All cards of a cluster, and the clock that they share."""

    def __init__(self, config: ClusterConfig, experts: ExpertLoad) -> None:
        self.stretch = 1.0
        self._experts = experts
        self._roofline = Roofline.of(config)
        self._states = [HEALTHY] * config.ranks
        self._rng = random.Random(config.seed + 1)
        self._launched: list[list[Launch]] = [[] for _ in range(config.ranks)]
        self._running: list[Done] = []
        self._end = 0.0  # of the running step, else of the last one; monotonic seconds

    @property
    def deadline(self) -> float | None:
        """When the running step ends (monotonic seconds); None when the cards stand still."""
        return self._end if self._running else None

    def order(self, order: CardOrder) -> None:
        """Makes one card ill, or well; from the next step on."""
        self._states[order.rank] = self._states[order.rank].after(order)

    def launch(self, rank: int, message: Launch) -> None:
        self._launched[rank].append(message)
        self._start()

    def ended(self) -> list[Done]:
        """What each rank is to be told about the step whose deadline has passed. The next one starts, if it was launched."""
        done, self._running = self._running, []
        self._start()
        return done

    def _start(self) -> None:
        """Starts the next step once every rank has launched it: at that moment or at the last one's end, never at "now"."""
        if self._running or not all(self._launched):
            return
        launches = [queue.pop(0) for queue in self._launched]
        if len({launch.step for launch in launches}) != 1:
            raise RuntimeError(f"the ranks have launched different steps: {[launch.step for launch in launches]}")
        works = [Work(m.decode_tokens, m.decode_pairs, m.prefill_tokens, m.prefill_pairs, m.graph) for m in launches]
        rows = self._experts.rows(sum(w.tokens for w in works))
        seconds = self._roofline.step(works, rows, self._states) * self.stretch * (1 + self._rng.gauss(0, NOISE))
        free = self._end
        self._end = max(free, *(m.at for m in launches)) + seconds
        # a card starts when its own host has launched, and then waits for the others inside its first collective
        self._running = [Done(m.step, self._end - max(free, m.at), rows) for m in launches]
