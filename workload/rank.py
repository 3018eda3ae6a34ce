"""A rank's scheduler process."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from socket import socket

from workload.config import ClusterConfig
from workload.device import Device
from workload.exchange import Exchange
from workload.lockstep import Lockstep
from workload.reporter import Reporter
from workload.scheduling.make import make_scheduler
from workload.scheduling.votes import GraphVotes
from workload.wire import Abort, Channel, Ready, Submit


def run(
    config: ClusterConfig, rank: int, loads_path: str, control: Channel, peers: Mapping[int, socket], frontend: socket, fabric: socket
) -> None:
    """Runs until a process that it works with is gone."""
    if config.vllm is not None:
        from workload.vllm import process

        process.run(config, config.vllm, rank, control, peers, frontend, _device(config, rank, loads_path, fabric))
    scheduler = make_scheduler(config, rank)
    reporter = Reporter(config, rank, loads_path)
    loop = Lockstep(
        exchange=Exchange(rank, config.ranks, peers),
        scheduler=scheduler,
        device=_device(config, rank, loads_path, fabric),
        reporter=reporter,
        votes=GraphVotes(config.engine),
        frontend=Channel(frontend, Submit | Abort),
        control=control,
    )
    # what start-up has made lives as long as the process; collecting around it would stall the whole group
    gc.collect()
    gc.freeze()
    reporter.publish(scheduler)
    loop.iterate()
    control.send(Ready())
    while True:
        loop.iterate()


def _device(config: ClusterConfig, rank: int, loads_path: str, fabric: socket) -> Device:
    if config.device == "cpu":
        from workload.device.computing import ComputingDevice
        from workload.device.cpu import CpuKernels  # numpy: a tenth of a second that the virtual cards need not pay

        return ComputingDevice(fabric, rank, CpuKernels(rank))
    if config.device == "cuda":
        from workload.device import cuda
        from workload.device.computing import ComputingDevice

        return ComputingDevice(fabric, rank, cuda.kernels(rank, config.ranks, Path(loads_path).parent))
    from workload.device.virtual import VirtualDevice

    return VirtualDevice(fabric)
