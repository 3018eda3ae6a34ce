"""The process between the cards: plays the virtual ones, or is where those on the CPU meet."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from socket import socket
from typing import Any

from workload.config import ClusterConfig
from workload.device.experts import ExpertLoad
from workload.wire import Channel, Done, Hotspot, Launch, Meet, Met, Ready, Stretch


def run(config: ClusterConfig, control: Channel, ranks: Mapping[int, socket]) -> None:
    """Serves the ranks until one of them is gone."""
    experts = ExpertLoad(config.ranks, config.seed, config.experts)
    control.send(Ready())
    channels = [Channel(ranks[r], Launch | Meet) for r in range(config.ranks)]
    if config.vllm is not None and not config.vllm.moe:
        from workload.vllm.cards import IndependentFabric

        IndependentFabric(config, experts, control, channels).run()
    elif config.device != "virtual":
        _Meets(config, experts, control, channels).run()
    else:
        _Virtual(config, experts, control, channels).run()


class Fabric:
    """Waits for messages, or for a deadline, and takes orders from the cluster."""

    def __init__(self, cards: Any, experts: ExpertLoad, control: Channel, channels: list[Channel]) -> None:
        self._cards = cards
        self._experts = experts
        self._control = control
        self._channels = channels
        self._rank = {channel: r for r, channel in enumerate(channels)}
        self._turn = 0

    def _wait(self, timeout: float | None) -> list[tuple[int, Any]]:
        # select() and not poll(): its timeout is in microseconds, theirs in milliseconds
        ready, _, _ = select.select([self._control, *self._channels], [], [], timeout)
        if self._control in ready:
            ready.remove(self._control)
            for order in self._control.drain():
                if isinstance(order, Hotspot):
                    self._experts.concentrate(order.rank, order.share)
                elif isinstance(order, Stretch):
                    self._cards.stretch = order.factor
                else:
                    self._cards.order(order)
        return [(self._rank[channel], message) for channel in ready for message in channel.drain()]

    def _tell(self, messages: list[Done] | list[Met]) -> None:
        """One message to each rank, each time beginning with another one: the first to be woken has an advantage."""
        self._turn += 1
        ranks = len(self._channels)
        for i in range(ranks):
            rank = (i + self._turn) % ranks
            self._channels[rank].send(messages[rank])


class _Virtual(Fabric):
    def __init__(self, config: ClusterConfig, experts: ExpertLoad, control: Channel, channels: list[Channel]) -> None:
        from workload.device.virtual import VirtualCards

        super().__init__(VirtualCards(config, experts), experts, control, channels)

    def run(self) -> None:
        while True:
            deadline = self._cards.deadline
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            for rank, message in self._wait(timeout):
                self._cards.launch(rank, message)
            if (deadline := self._cards.deadline) is not None and time.monotonic() >= deadline:
                self._tell(self._cards.ended())


class _Meets(Fabric):
    def __init__(self, config: ClusterConfig, experts: ExpertLoad, control: Channel, channels: list[Channel]) -> None:
        from workload.device.computing import Meets

        super().__init__(Meets(config, experts), experts, control, channels)

    def run(self) -> None:
        while True:
            for rank, message in self._wait(None):
                if (met := self._cards.arrive(rank, message)) is not None:
                    self._tell([met] * len(self._channels))
