"""What makes a cluster a vLLM one."""

from __future__ import annotations

import msgspec

VERSION = "0.32.0"  # the vLLM release whose face the cluster wears
MAX_MODEL_LEN = 262_144  # --max-model-len: token histograms have buckets up to it


class VllmFlags(msgspec.Struct, frozen=True, kw_only=True):
    """`moe`: the ranks share experts and step together; without, each is an engine of its own that steps at its own pace.

    `api_servers` front ends (--api-server-count) share one port. They are played by one process; what a page shows is what
    prometheus_client's multiprocess mode shows of that many. vLLM's own default is one per rank.
    """

    moe: bool = True
    api_servers: int = 1

    def __post_init__(self) -> None:
        if self.api_servers < 1:
            raise ValueError(f"{self.api_servers} API servers: at least 1 has to answer")
