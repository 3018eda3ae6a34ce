"""Cards played by this machine's cores: each rank really reads KV and multiplies experts, with numpy in a thread of its process.

The meets are real too: twice in each of a few groups of layers, every card waits until the last one has arrived. Sizes are scaled
down so that 4 ranks on 2 cores step in about 50 ms; what matters is that time follows pairs and rows, and that cards wait.
"""

from __future__ import annotations

import queue
import socket
import threading
import time

import numpy as np

from workload.config import ClusterConfig
from workload.device import Ended, Work
from workload.device.experts import ExpertLoad
from workload.wire import Channel, Meet, Met, PeerLostError

_GROUPS = 4  # groups of layers, each with a dispatch and a combine
_KV = (65_536, 64)  # rows of 256 bytes, one per pair of a decode step; read again and again where there are more pairs
_PREFILL_DISCOUNT = 5  # a prefill's pairs cost a fifth of a decode's, as in the roofline
_EXPERTS = (16, 512, 512)  # matrices of one card: 16 MiB, read in every group whatever there is to do
_DECODE_COPIES = 4  # multiplied rows per token copy in a decode step; in a prefill, whose rows fill their tiles, one


class CpuDevice:
    """One rank's card."""

    def __init__(self, sock: socket.socket, rank: int) -> None:
        self._channel = Channel(sock, Met)
        self._rank = rank
        rng = np.random.default_rng(rank)
        self._kv = rng.random(_KV, dtype=np.float32)
        self._query = rng.random(_KV[1], dtype=np.float32)
        self._weights = rng.random(_EXPERTS, dtype=np.float32)
        self._launched: queue.SimpleQueue[tuple[Work, float]] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="card").start()

    def launch(self, step: int, work: Work) -> None:  # noqa: ARG002  # the thread runs steps in order and needs no number
        self._launched.put((work, time.monotonic()))

    def wait(self) -> Ended:
        ended = self._ended.get()
        if ended is None:
            raise PeerLostError
        return ended

    def _run(self) -> None:
        try:
            while True:
                self._forward(*self._launched.get())
        except PeerLostError:
            self._ended.put(None)

    def _forward(self, work: Work, launched: float) -> None:
        free = time.monotonic()
        met = Met([], 1.0)
        for group in range(_GROUPS):
            self._attention(work)
            met = self._meet(Meet(work.tokens, first=group == 0))
            self._experts(sum(layer[self._rank] for layer in met.rows) // len(met.rows) * (_DECODE_COPIES if work.graph else 1))
            self._meet(Meet(0, first=False))
        time.sleep((met.stretch - 1) * (time.monotonic() - free))
        self._ended.put(Ended(time.monotonic() - max(free, launched), met.rows))

    def _meet(self, meet: Meet) -> Met:
        self._channel.send(meet)
        met: Met = self._channel.receive()
        return met

    def _attention(self, work: Work) -> None:
        rows = work.decode_pairs + work.prefill_pairs // _PREFILL_DISCOUNT
        while rows > 0:
            self._kv[:rows].dot(self._query)
            rows -= len(self._kv)

    def _experts(self, rows: int) -> None:
        experts, width, _ = _EXPERTS
        np.matmul(np.ones((experts, max(1, rows // experts), width), dtype=np.float32), self._weights)


class CpuMeets:
    """Where the cards of all ranks meet: nobody goes on before the last one is there."""

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
