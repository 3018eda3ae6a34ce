"""The scheduler that a cluster's ranks need."""

from __future__ import annotations

from workload.config import ClusterConfig
from workload.scheduler import Scheduler
from workload.scheduling.decode_role import DecodeScheduler
from workload.scheduling.prefill_role import PrefillScheduler


def make_scheduler(config: ClusterConfig, rank: int) -> Scheduler:
    """Draws of speculation and transfers differ from rank to rank and are the same for the same seed."""
    flags, seed = config.engine, config.seed + 1000 * (rank + 1)
    if flags.split is None:
        return Scheduler(config.limits, flags, seed)
    kind = PrefillScheduler if flags.split.role == "prefill" else DecodeScheduler
    return kind(config.limits, flags, flags.split, seed)
