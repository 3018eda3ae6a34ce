"""Conversations are sent to a rank while another one holds their prefix: the rank computes again what its peers read from their caches.

Request counts and lengths stay as they are; of the rank's prompts nothing is cached, so it prefills in many more steps, which takes the
decode graph from all ranks. Severity is the share of the rank's requests that are strangers there. Needs ordinary traffic with a
cached part.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import ClusterConfig
from workload.control import Control
from workload.fault import Fault


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.estrange(rank, severity)
    return lambda: control.estrange(rank, 0.0)


def lacks(config: ClusterConfig) -> str | None:
    if config.traffic is None or config.traffic.fresh is None:
        return "nothing of this traffic is cached anywhere; take traffic with a cached part, as chat or agent"
    return None


FAULT = Fault(
    id="prefix_cache_skew",
    klass="load",
    about="One rank gets conversations whose prefix another rank's cache holds, and computes them again.",
    start=start,
    scale="share of the rank's requests",
    most=1.0,
    ramps=True,
    lacks=lacks,
)
