"""On a split engine one rank's KV link is slow: requests pile up in its queue between prefill and decode.

They pile up in the transfer queue of a decode server, among the in-flight ones of a prefill server. Severity 1 is 1/250 of the link's
speed: with 50 GB/s and 250 MB of KV a request, one or two seconds each, about the pace at which a rank of chat gets them.
"""

from __future__ import annotations

from collections.abc import Callable

from workload.config import ClusterConfig
from workload.control import Control
from workload.fault import Fault

_SLOWER = 250.0


def start(control: Control, rank: int, severity: float) -> Callable[[], None]:
    control.kv_link(rank, 1 / (1 + _SLOWER * severity))
    return lambda: control.kv_link(rank, 1.0)


def lacks(config: ClusterConfig) -> str | None:
    return "the engine is not split into prefill and decode; give it a split with a role" if config.engine.split is None else None


FAULT = Fault(
    id="pd_queue_skew",
    klass="load",
    about="One rank's KV link is slow, and requests queue between prefill and decode.",
    start=start,
    scale="1 is 1/250 of the link's speed",
    ramps=True,
    lacks=lacks,
)
