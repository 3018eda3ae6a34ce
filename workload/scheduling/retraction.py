"""Whose KV is taken back when the pool cannot hold the next decode step."""

from __future__ import annotations

from collections.abc import Sequence

from workload.scheduling.request import Request
from workload.scheduling.settings import RetractPolicy


def victim(running: Sequence[Request], policy: RetractPolicy, *, speculative: bool) -> Request:
    """The next request to go; `running` is in the order of the batch, the newest last.

    "engine" is SGLang's own order: the one that has generated least, the longest prompt among equals; under speculation a batch
    can only be cut at its end, so there the newest goes.
    """
    if policy == "newest" or (policy == "engine" and speculative):
        return running[-1]
    if policy == "longest":
        return max(running, key=lambda r: r.context)
    return min(running, key=lambda r: (r.scheduled, -r.prompt))
