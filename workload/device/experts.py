"""Which card's experts the tokens go to. Seeded; one place decides it for all cards.

Every token goes to `TOP_K` of 256 experts in every layer. An expert's popularity is log-normal: what the layer's router prefers for good,
and what the present mix of traffic prefers, which drifts. Who holds which expert is decided once, from what is for good; what drifts,
and chance in small batches, make the cards uneven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from workload.config import EXPERTS, Experts
from workload.device import placement

SAMPLED_LAYERS = (10, 50)  # the layers whose loads are drawn; they stand for all others
TOP_K = 8  # experts per token, as there

# The traffic's mix is drawn anew every so many steps, and keeps this much of the last one: it forgets in some 500 steps, 20 s.
# A constant of the generator, not a measurement.
MIX_STEPS = 50
_MIX_KEEPS = 0.9


class ExpertLoad:
    """Where the token copies go, per sampled layer and card."""

    def __init__(self, ranks: int, seed: int, experts: Experts = Experts()) -> None:  # noqa: B008  # frozen
        self._ranks = ranks
        self._rng = np.random.default_rng(seed)
        self._drift = experts.drift
        shape = (len(SAMPLED_LAYERS), EXPERTS)
        self._taste = self._rng.normal(0, experts.skew, shape)
        self._mix = self._rng.normal(0, experts.drift, shape)
        self._parts = np.array([_place(_shares(taste), experts, ranks) for taste in self._taste])  # layers x experts x cards
        self._steps = 0
        self._cards = self._card_shares(self._mix[None])[0]
        self._hot: tuple[int, float] | None = None

    def concentrate(self, rank: int, share: float | None) -> None:
        """Sends `share` of all copies to one card's experts from now on; None ends it."""
        self._hot = None if share is None else (rank, share)

    def rows(self, tokens: int) -> list[list[int]]:
        """Copies per sampled layer and card for one step of `tokens` tokens over all ranks."""
        self.step()
        copies = tokens * TOP_K
        return [self._deal(copies, shares) for shares in self._cards]

    def step(self) -> None:
        """Lets the traffic's mix drift for one step."""
        self._steps += 1
        if self._steps % MIX_STEPS == 0:
            self.drift()

    def drift(self) -> None:
        """Draws the mix that the next steps have."""
        (self._mix,) = mixes = self._mixes(1)
        self._cards = self._card_shares(mixes)[0]

    def _deal(self, copies: int, shares: placement.FloatArray) -> list[int]:
        if self._hot is None:
            return [int(n) for n in self._rng.multinomial(copies, shares)]
        rank, share = self._hot
        hot = round(copies * share)
        others = np.delete(shares, rank)
        rest = [int(n) for n in self._rng.multinomial(copies - hot, others / others.sum())]
        return [*rest[:rank], hot, *rest[rank:]]

    def _mixes(self, count: int) -> placement.FloatArray:
        """The next mixes: mixes x layers x experts."""
        mixes, last = self._fresh(count), self._mix
        for mix in mixes:
            np.add(_MIX_KEEPS * last, mix, out=mix)
            last = mix
        return mixes

    def _fresh(self, count: int) -> placement.FloatArray:
        """What each of the next mixes has that is not the last one's."""
        return self._rng.normal(0, self._drift * math.sqrt(1 - _MIX_KEEPS**2), (count, *self._mix.shape))

    def _card_shares(self, mixes: placement.FloatArray) -> placement.FloatArray:
        """Share of all copies that goes to each card: mixes x layers x cards."""
        shares: placement.FloatArray = np.matmul(_shares(self._taste + mixes)[:, :, None, :], self._parts)[:, :, 0]
        return shares


def _shares(logs: placement.FloatArray) -> placement.FloatArray:
    weights = np.exp(logs)
    shares: placement.FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return shares


def _place(popularity: placement.FloatArray, experts: Experts, ranks: int) -> placement.FloatArray:
    copies = placement.replicas(popularity, experts.redundant)
    if experts.placement == "balanced":
        return placement.balanced(popularity, copies, ranks)
    return placement.in_order(copies, ranks)


def hottest(rows: Sequence[Sequence[float]]) -> float:
    """Copies on the hottest card, mean over the sampled layers."""
    return sum(max(layer) for layer in rows) / len(rows)


def balancedness(rows: Sequence[Sequence[float]]) -> float | None:
    """Mean over layers of mean / max of the cards' loads: 1 is level. None when nothing was routed."""
    if not all(any(layer) for layer in rows):
        return None
    return sum(sum(layer) / len(layer) / max(layer) for layer in rows) / len(rows)
