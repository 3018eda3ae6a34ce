"""What a cluster is made of, in one frozen value: the caller writes it, every process reads its own copy."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

VERSION = "0.5.23"  # the SGLang release whose face the cluster wears

Method = Literal["round_robin", "total_requests", "total_tokens"]
DeviceKind = Literal["virtual", "cpu"]


class Lengths(msgspec.Struct, frozen=True):
    """A lognormal length in tokens, cut at both ends: `median` and `sigma` of the logarithm."""

    median: float
    sigma: float
    low: int
    high: int


class ClosedLoop(msgspec.Struct, frozen=True, tag="closed"):
    """A fixed crowd: each user thinks (exponential, mean `think` seconds), asks, waits for the answer, thinks again.

    A slower engine is asked less, so the running batch stays about the same whatever the step time is.
    """

    users_per_rank: int = 12
    think: float = 3.0


class OpenLoop(msgspec.Struct, frozen=True, tag="open"):
    """Poisson arrivals at `rate` requests per second for the whole cluster, however slow the answers are."""

    rate: float


class Traffic(msgspec.Struct, frozen=True):
    """Who asks, and for what: length of the prompt, of its part that no cache holds, and of the answer."""

    arrivals: ClosedLoop | OpenLoop
    prompt: Lengths
    fresh: Lengths
    output: Lengths


# The next turn of a conversation: 4-8K tokens of context, all but the new message cached, some ten seconds of answer.
# 12 users a rank that think 3 s and wait about 10 s keep some 9 requests in each rank's decode batch.
CHAT = Traffic(
    arrivals=ClosedLoop(),
    prompt=Lengths(median=5000, sigma=0.5, low=512, high=32_768),
    fresh=Lengths(median=100, sigma=0.7, low=8, high=400),
    output=Lengths(median=200, sigma=0.6, low=16, high=1500),
)


class Limits(msgspec.Struct, frozen=True):
    """What one rank's scheduler may do."""

    max_running_requests: int = 256
    # a 141 GB card at 90 %, less 84 GB of weights, over 44,928 bytes a token
    kv_tokens: int = 950_016
    # SGLang divides its chunked prefill size by the attention DP size: 8192 over 8 ranks
    chunk_tokens: int = 1024


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`port` 0 takes a free one. `labels` is where the truth about injected faults goes; no child process is told it."""

    ranks: int = 8
    device: DeviceKind = "virtual"
    method: Method = "round_robin"  # SGLang's default for an engine that is not split into prefill and decode
    traffic: Traffic | None = CHAT
    limits: Limits = Limits()
    seed: int = 0
    port: int = 0
    model_name: str = "glm-5-like"
    labels: Path | None = None

    def __post_init__(self) -> None:
        if self.ranks < 2:
            raise ValueError(f"{self.ranks} ranks: a data-parallel group has at least 2")
