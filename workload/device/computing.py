"""Cards that really compute: a thread of the rank's process works through launched steps, and cards meet between groups of layers.

What reads KV and multiplies experts is a `Kernels`: numpy on the cores, or torch on a GPU. What is the same for both is here: twice in
each group of layers, every card waits until the last one has arrived.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from typing import Protocol

from workload.config import ClusterConfig
from workload.device import Ended, Work
from workload.device.experts import ExpertLoad
from workload.wire import Channel, Meet, Met


class Kernels(Protocol):
    """One card's work. `attention` and `experts` may only queue it; `finish` waits until it is done."""

    groups: int  # of layers, each with a dispatch and a combine

    def begin(self) -> None:
        """A step starts."""

    def attention(self, work: Work) -> None:
        """Reads what one group of layers attends to."""

    def experts(self, rows: int, *, decode: bool) -> None:
        """Multiplies `rows` token copies with this card's experts, in one group of layers."""

    def exchange(self, rows: list[int]) -> bool:
        """Sends token copies to the other cards and waits for theirs on the cards themselves; False: the cards cannot, the host must.

        `rows[r]`: copies that go to card r, from all together.
        """

    def finish(self) -> None:
        """Waits for everything that was queued."""

    def span(self) -> float | None:
        """Seconds from the step's first start to its last end, as the card measured it; None: it has no clock of its own."""


class ComputingDevice:
    """One rank's card."""

    def __init__(self, sock: socket.socket, rank: int, kernels: Kernels) -> None:
        self._channel = Channel(sock, Met)
        self._rank = rank
        self._kernels = kernels
        self._launched: queue.SimpleQueue[tuple[Work, float]] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="card").start()

    def launch(self, step: int, work: Work) -> None:  # noqa: ARG002  # the thread runs steps in order and needs no number
        self._launched.put((work, time.monotonic()))

    def wait(self) -> Ended:
        """Raises what the card's thread died of: a lost peer, or an error of the card."""
        ended = self._ended.get()
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _run(self) -> None:
        try:
            while True:
                self._forward(*self._launched.get())
        except BaseException as error:  # noqa: BLE001  # whatever it was, the rank must not wait for ever
            self._ended.put(error)

    def _forward(self, work: Work, launched: float) -> None:
        free = time.monotonic()
        kernels = self._kernels
        kernels.begin()
        met = Met([], 1.0)
        for group in range(kernels.groups):
            kernels.attention(work)
            if group == 0 or not kernels.exchange(mean_rows(met.rows)):
                # the first meet of a step tells every card where the tokens go
                met = self._meet(Meet(work.tokens, first=group == 0))
            kernels.experts(mean_rows(met.rows)[self._rank], decode=work.graph)
            if not kernels.exchange(mean_rows(met.rows)):
                self._meet(Meet(0, first=False))
        kernels.finish()
        span = kernels.span()
        wall = time.monotonic() - free
        time.sleep((met.stretch - 1) * wall)
        if span is None:
            span = time.monotonic() - max(free, launched)
        else:
            span += (met.stretch - 1) * wall
        self._ended.put(Ended(span, met.rows))

    def _meet(self, meet: Meet) -> Met:
        self._kernels.finish()
        self._channel.send(meet)
        met: Met = self._channel.receive()
        return met


def mean_rows(rows: list[list[int]]) -> list[int]:
    """Copies per card, mean of the sampled layers."""
    return [sum(card) // len(rows) for card in zip(*rows, strict=True)]


class Meets:
    """Where the cards of all ranks meet through the host: nobody goes on before the last one is there."""

    def __init__(self, config: ClusterConfig, experts: ExpertLoad) -> None:
        self.stretch = 1.0
        self._experts = experts
        self._arrived: dict[int, Meet] = {}
        self._ranks = config.ranks
        self._rows: list[list[int]] = []

    def arrive(self, rank: int, meet: Meet) -> Met | None:
        """What to tell every card, once all have arrived."""
        self._arrived[rank] = meet
        if len(self._arrived) < self._ranks:
            return None
        if meet.first:
            self._rows = self._experts.rows(sum(m.tokens for m in self._arrived.values()))
        self._arrived.clear()
        return Met(self._rows, self.stretch)
