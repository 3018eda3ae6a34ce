"""The switches of the engine that the cluster plays, named after what they do. Defaults are those of SGLang 0.5.23 as the demo runs it."""

from __future__ import annotations

from typing import Literal

import msgspec

RetractPolicy = Literal["engine", "longest", "newest"]
Role = Literal["null", "prefill", "decode"]


class Speculation(msgspec.Struct, frozen=True):
    """A draft model proposes `steps` tokens one after another; each is accepted with chance `accept` if the one before it was.

    Every verified row yields its accepted drafts and one token more: with the defaults 1 + .7 + .49 + .343 = 2.53 tokens in the mean.
    """

    steps: int = 3
    accept: float = 0.7

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"{self.steps} speculative steps: there is at least 1, or no speculation")
        if not 0 <= self.accept <= 1:
            raise ValueError(f"an acceptance of {self.accept}: it is a chance, 0 to 1")


class Split(msgspec.Struct, frozen=True):
    """One half of an engine that is split into prefill and decode. The other half is two delays and a link, the same on every rank.

    `handshake`: seconds until the two sides know each other. `peer`: seconds that the other side then needs, on a prefill server
    until the decode side has room, on a decode server until the prefill side has computed. `failures` is the share of transfers
    that end in an error.
    """

    role: Literal["prefill", "decode"]
    handshake: float = 0.010
    peer: float = 0.050
    gb_per_second: float = 50.0  # a 400 Gbit/s network card per rank
    failures: float = 0.0
    # what a decode server keeps free for each request that it holds (--num-reserved-decode-tokens)
    reserved_tokens: int = 512

    def __post_init__(self) -> None:
        if self.gb_per_second <= 0:
            raise ValueError(f"a KV link of {self.gb_per_second} GB/s; it must be more than 0")
        if not 0 <= self.failures <= 1:
            raise ValueError(f"{self.failures} of the transfers fail: it is a share, 0 to 1")


class EngineFlags(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks schedule and what they tell.

    `mixed`: decode rows ride in the extend batch (--enable-mixed-chunk). `retract`: who gives its KV back, see
    `workload.scheduling.retraction`. A rank votes for the decode graph up to `decode_graph_rows` rows and for the prefill graph up
    to `prefill_graph_tokens` tokens (0: none was captured). `moe_a2a`: with DeepEP decodes never run as one-token extends.
    `publish_every`: decode or idle results between two load snapshots (--load-snapshot-publish-interval).
    """

    mixed: bool = False
    retract: RetractPolicy = "engine"
    speculation: Speculation | None = None
    split: Split | None = None
    decode_graph_rows: int = 256  # as many as may run
    prefill_graph_tokens: int = 0
    moe_a2a: Literal["none", "deepep"] = "none"
    publish_every: int = 15

    def __post_init__(self) -> None:
        if self.mixed and self.speculation is not None:
            raise ValueError("mixed prefill and speculation together: SGLang refuses it; switch one of them off")
        if self.mixed and self.split is not None:
            raise ValueError(f"mixed prefill on a {self.split.role} server: it either prefills or decodes; switch mixed off")
        if self.publish_every < 1:
            raise ValueError(f"a snapshot every {self.publish_every} results: at least 1")

    @property
    def role(self) -> Role:
        """As `/server_info` calls it: "null" (a string) for an engine that is not split."""
        return self.split.role if self.split else "null"

    @property
    def engine_type(self) -> str:
        """As the label of every metric calls it."""
        return self.split.role if self.split else "unified"
