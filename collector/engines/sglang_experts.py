"""Which card holds how much of the experts' work: SGLang's eplb_gpu_physical_count histogram mapped from EP ranks to DP ranks. Pure.

The histogram is used as an array: bucket le=r counts the tokens dispatched to the experts of EP ranks 0..r, per layer, so the load of
EP rank r is bucket(r) - bucket(r-1). Rank layout from SGLang's code (docs/signals.md): dp_rank = tp_rank // attention TP size,
moe_ep_rank = tp_rank % (tp/moe_dp) // (tp/moe_dp/ep).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple, TypeAlias

from collector.engines.limits import rank_of
from collector.model import Problem

BUCKET = "eplb_gpu_physical_count_bucket"

Parts: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # places of the buckets that add up to a load, and of those taken off it


class Bucket(NamedTuple):
    """One bucket series: its labels, the cumulative count seen, and its place among the samples of the page."""

    layer: str
    le: str
    seen: float
    place: int


THEN = "the load of experts cannot be told per DP rank in this layout; use eplb_balancedness"


@dataclass(slots=True)
class Layout:
    """The EP ranks of each DP rank as the page's labels show them."""

    experts: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    aligned: bool = True  # so far tp_rank == dp_rank == moe_ep_rank

    def note(self, dp: int, tp: int, moe_ep_rank: str) -> None:
        """One series' labels."""
        ep = rank_of(moe_ep_rank)
        if ep is not None:
            self.experts[dp].add(ep)
            self.aligned = self.aligned and dp == tp == ep

    def ranks(self, count: int) -> dict[int, int] | str:
        """EP rank -> DP rank for `count` EP ranks, or why there is no such mapping."""
        if not self.experts:
            return "no series carries both dp_rank and moe_ep_rank"
        if any(len(held) != 1 for held in self.experts.values()):
            return "a DP rank spans several EP ranks"
        # Labels that agree beyond rank 0 prove one card per DP and EP rank (attention TP 1, as many EP as TP ranks). Then the layout
        # holds for the ranks of the other nodes too, whose labels are on pages of their own.
        if self.aligned and max(self.experts) >= 1:
            return {ep: ep for ep in range(count)}
        mapping = {min(held): dp for dp, held in self.experts.items()}
        if len(mapping) < len(self.experts):
            return "several DP ranks share an EP rank"
        if len(mapping) < count:
            return f"only {len(mapping)} of {count} EP ranks are named by this page's labels"
        return mapping


def load(buckets: list[Bucket], layout: Layout, url: str, problems: list[Problem]) -> dict[int, Parts]:
    """DP rank -> the buckets that say how many tokens were dispatched to the experts on its card since start, all layers. Empty when
    unknown; a Problem says why."""
    if not buckets:
        return {}
    loads = _per_ep_rank(buckets)
    mapping = "its buckets do not count up over EP ranks" if loads is None else layout.ranks(len(loads))
    if loads is None or isinstance(mapping, str):
        problems.append(Problem(url, f"eplb_gpu_physical_count: {mapping}", THEN))
        return {}
    return {mapping[ep]: parts for ep, parts in enumerate(loads) if ep in mapping}


def _per_ep_rank(buckets: list[Bucket]) -> list[Parts] | None:
    """Load of EP ranks 0..n-1, over layers; None when the buckets are not such an array."""
    layers: dict[str, dict[int, Bucket]] = defaultdict(dict)
    for bucket in buckets:
        if bucket.le == "+Inf":
            continue
        rank = rank_of(bucket.le.removesuffix(".0"))
        if rank is None or not isfinite(bucket.seen) or layers[bucket.layer].setdefault(rank, bucket).seen != bucket.seen:
            return None
    plus: dict[int, list[int]] = defaultdict(list)
    minus: dict[int, list[int]] = defaultdict(list)
    for found in layers.values():
        below: Bucket | None = None
        for expected, rank in enumerate(sorted(found)):
            bucket = found[rank]
            if rank != expected or bucket.seen < (below.seen if below else 0.0):
                return None
            plus[rank].append(bucket.place)
            if below:
                minus[rank].append(below.place)
            below = bucket
    return [(tuple(plus[rank]), tuple(minus[rank])) for rank in range(len(plus))] or None
