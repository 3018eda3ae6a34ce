"""Traffic as a value: when requests come, how long they are, and which beginnings they share."""

from __future__ import annotations

import msgspec


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


class GammaLoop(msgspec.Struct, frozen=True, tag="gamma"):
    """Arrivals with gamma distributed gaps: `rate` per second for the whole cluster, `cv` the gaps' deviation over their mean.

    `cv` 1 is Poisson; above it requests come in clumps.
    """

    rate: float
    cv: float


class BurstLoop(msgspec.Struct, frozen=True, tag="bursts"):
    """Poisson arrivals whose rate has two states (Markov modulated): `calm` and `burst` requests per second for the whole cluster.

    Each state lasts an exponential time of mean `calm_seconds` and `burst_seconds`.
    """

    calm: float
    burst: float
    calm_seconds: float
    burst_seconds: float


class DiurnalLoop(msgspec.Struct, frozen=True, tag="diurnal"):
    """Poisson arrivals whose rate follows a sine about `rate` per second for the whole cluster.

    It lies between `rate * (1 - swing)` and `rate * (1 + swing)`, one turn lasts `period` seconds and begins at the mean, rising.
    """

    rate: float
    swing: float
    period: float = 86_400.0


Open = OpenLoop | GammaLoop | BurstLoop | DiurnalLoop


class Conversations(msgspec.Struct, frozen=True, tag="conversations"):
    """A request begins with a system prompt and all that was said before in its conversation, answers included.

    The first message has the length `Traffic.prompt`, each later one `Traffic.fresh`. A conversation has `turns` requests in the
    mean (geometric), and ends earlier where the next one would pass `context` tokens. `systems` system prompts of `system` tokens
    are in use, evenly. Between two turns the user, or the tool, takes `pause` seconds (exponential); in a closed loop its `think`
    counts instead.
    """

    system: int
    systems: int
    turns: float
    context: int
    pause: float


class Documents(msgspec.Struct, frozen=True, tag="documents"):
    """A request begins with a system prompt of `system` tokens and one of `count` documents, whose popularity is a power of its rank.

    The k-th document is asked about k ** -`zipf` as often as the first. A document has the length `Traffic.prompt`, always the
    same; the question after it has `Traffic.fresh`.
    """

    system: int
    count: int
    zipf: float


class Traffic(msgspec.Struct, frozen=True):
    """Who asks, and for what: lengths of the prompt, of its new part, and of the answer.

    Without `sharing`, `prompt` is the whole prompt and all of it but `fresh` is taken to be cached, on whatever rank it lands;
    `fresh` None: nothing is. With `sharing`, each rank's own prefix cache tells what is cached.
    """

    arrivals: ClosedLoop | OpenLoop | GammaLoop | BurstLoop | DiurnalLoop
    prompt: Lengths
    fresh: Lengths | None
    output: Lengths
    sharing: Conversations | Documents | None = None

    def __post_init__(self) -> None:
        if self.sharing is not None and self.fresh is None:
            raise ValueError("traffic with shared beginnings needs `fresh`: the length of what follows them")
