"""A rank's scheduler process."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from socket import socket

from workload.config import ClusterConfig
from workload.device import Device
from workload.exchange import Exchange
from workload.lockstep import Lockstep
from workload.reporter import Reporter
from workload.scheduler import Scheduler
from workload.wire import Abort, Channel, Ready, Submit


def run(
    config: ClusterConfig, rank: int, loads_path: str, control: Channel, peers: Mapping[int, socket], frontend: socket, fabric: socket
) -> None:
    """Runs until a process that it works with is gone."""
    scheduler = Scheduler(config.limits)
    reporter = Reporter(config, rank, loads_path)
    loop = Lockstep(
        exchange=Exchange(rank, config.ranks, peers),
        scheduler=scheduler,
        device=_device(config, rank, fabric),
        reporter=reporter,
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


def _device(config: ClusterConfig, rank: int, fabric: socket) -> Device:
    if config.device == "cpu":
        from workload.device.cpu import CpuDevice  # numpy: a tenth of a second that the virtual cards need not pay

        return CpuDevice(fabric, rank)
    from workload.device.virtual import VirtualDevice

    return VirtualDevice(fabric)
