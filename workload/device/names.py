"""What a page calls each device: nobody shall take a virtual card for a real one."""

from __future__ import annotations

from workload.config import ClusterConfig
from workload.device import catalogue


def accelerator(config: ClusterConfig) -> str:
    if config.device == "virtual":
        return f"{catalogue.find(config.card).name} (virtual)"
    if config.device == "cuda":
        from workload.device.cuda import card_name  # torch

        return card_name(config.ranks)
    return "CPU (numpy)"
