"""An engine core's process."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from socket import socket
from typing import NoReturn

from workload.config import ClusterConfig
from workload.device import Device
from workload.exchange import Exchange
from workload.scheduling.votes import GraphVotes
from workload.vllm.core import EngineCore
from workload.vllm.scheduler import VllmScheduler
from workload.vllm.settings import VllmFlags
from workload.vllm.wire import StartWave
from workload.wire import Abort, Channel, Ready, Submit


def run(
    config: ClusterConfig, flags: VllmFlags, rank: int, control: Channel, peers: Mapping[int, socket], frontend: socket, device: Device
) -> NoReturn:
    """Runs until a process that it works with is gone, which raises PeerLostError."""
    core = EngineCore(
        exchange=Exchange(rank, config.ranks, peers) if flags.moe else None,
        scheduler=VllmScheduler(config.limits),
        device=device,
        votes=GraphVotes(config.engine),
        frontend=Channel(frontend, Submit | Abort | StartWave),
        control=control,
    )
    # what start-up has made lives as long as the process; collecting around it would stall the whole group
    gc.collect()
    gc.freeze()
    control.send(Ready())
    while True:
        core.iterate()
