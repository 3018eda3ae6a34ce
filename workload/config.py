"""What a cluster is made of, in one frozen value: the caller writes it, every process reads its own copy."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from workload.router import REFRESH_SECONDS, SglangMethod
from workload.scheduling.settings import EngineFlags
from workload.traffic.model import ClosedLoop, Lengths, OpenLoop, Traffic
from workload.traffic.presets import CHAT
from workload.vllm.settings import VllmFlags

__all__ = [
    "CHAT",
    "EXPERTS",
    "VERSION",
    "Budget",
    "ClosedLoop",
    "ClusterConfig",
    "DeviceKind",
    "DispatchMode",
    "EngineFlags",
    "Experts",
    "Lengths",
    "Limits",
    "Method",
    "OpenLoop",
    "Traffic",
    "VllmFlags",
]

VERSION = "0.5.23"  # the SGLang release whose face the cluster wears

Method = SglangMethod | Literal["vllm_score"]
DeviceKind = Literal["virtual", "cpu", "cuda"]
DispatchMode = Literal["normal", "low_latency"]


class Limits(msgspec.Struct, frozen=True):
    """What one rank's scheduler may do."""

    max_running_requests: int = 256
    # a 141 GB card at 90 %, less 84 GB of weights, over 44,928 bytes a token
    kv_tokens: int = 950_016
    # SGLang divides its chunked prefill size by the attention DP size: 8192 over 8 ranks
    chunk_tokens: int = 1024
    # SGLang keeps prefixes in what the requests leave of the KV pool. Here they are counted apart, and in the mean a busy pool
    # leaves more than this: 12 requests of 30K tokens take 360K of 950K
    prefix_tokens: int = 400_000


class Budget(msgspec.Struct, frozen=True):
    """How a load-aware router keeps its books: seconds between two reads of the snapshots, and whether an unchanged one is left alone.

    The defaults are SGLang's; 0 and False show what they are for.
    """

    refresh_seconds: float = REFRESH_SECONDS
    skip_same: bool = True


EXPERTS = 256  # per layer, as in GLM-5 and DeepSeek-V3


class Experts(msgspec.Struct, frozen=True):
    """How tokens find their experts.

    `skew` and `drift` are spreads (of the logarithm) of the experts' popularity: what lasts, which a balanced placement levels, and what
    changes with the traffic, which it cannot. The defaults give a healthy balancedness (mean over max) of about 0.85 over 8 cards.
    `redundant` further copies go to the busiest experts. `dispatch`: with `normal` a step's time follows the hottest card; with
    `low_latency` decode steps have a fixed shape, and a step with prefill is dispatched as `normal`, as with SGLang's `auto`.
    """

    skew: float = 0.5
    drift: float = 0.25
    redundant: int = 0
    placement: Literal["balanced", "in_order"] = "balanced"
    dispatch: DispatchMode = "normal"

    def __post_init__(self) -> None:
        if self.skew < 0 or self.drift < 0 or self.redundant < 0:
            raise ValueError(f"experts: skew {self.skew}, drift {self.drift} and redundant {self.redundant} must not be negative")


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`vllm` makes it a vLLM cluster: `method`, `budget` and `engine` are SGLang's, and then mean nothing.

    `port` 0 takes a free one. `labels` is where the truth about injected faults goes; no child process is told it.
    """

    vllm: VllmFlags | None = None
    ranks: int = 8
    device: DeviceKind = "virtual"
    card: str = "H20-3e"  # that a virtual device pretends to be, a key of `workload.device.catalogue`
    # times as long a step of virtual cards takes, as with a model so many times as large on a card that has the memory for it; many
    # ranks then fit on few cores
    slowdown: float = 1.0
    experts: Experts = Experts()
    method: Method = "round_robin"  # SGLang's default for an engine that is not split into prefill and decode
    budget: Budget = Budget()
    traffic: Traffic | None = CHAT
    replay: str | None = None  # recorded requests, the path of a CSV file of `workload.traffic.replay`, in place of `traffic`
    limits: Limits = Limits()
    engine: EngineFlags = EngineFlags()
    seed: int = 0
    port: int = 0
    model_name: str = "glm-5-like"
    labels: Path | None = None

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ValueError(f"{self.ranks} ranks: a data-parallel group has at least 2")
        if self.vllm is not None and not self.vllm.moe and self.device != "virtual":
            raise ValueError(f"dense engines on device {self.device!r}: only virtual cards can step alone; use device 'virtual'")
        if not 1 <= self.slowdown <= 100:
            raise ValueError(f"slowdown {self.slowdown:g}: a step can take 1 to 100 times as long")
        places = EXPERTS + self.experts.redundant
        if self.ranks > places and (self.vllm is None or self.vllm.moe):
            raise ValueError(
                f"{self.ranks} ranks for {EXPERTS} experts and {self.experts.redundant} further copies: {self.ranks - places} cards would"
                f" hold none; set experts.redundant to {self.ranks - EXPERTS} or more, or take {places} ranks or fewer"
            )
        if self.device == "virtual":
            from workload.device import catalogue
            from workload.device.roofline import Roofline  # which itself needs this module

            Roofline.on(catalogue.find(self.card)).check(self.limits.kv_tokens)
