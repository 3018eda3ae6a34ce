"""Which card's experts the tokens go to. Seeded; one place decides it for all cards."""

from __future__ import annotations

import math
import random

SAMPLED_LAYERS = (10, 50)  # the layers whose loads are drawn; they stand for all others
TOP_K = 8  # experts per token, as in GLM-5 and DeepSeek-V3

# Spread of a card's load about the mean (of the logarithm): what a layer's router prefers for good, and what one batch adds.
# Together they give a healthy balancedness (mean over max) of about 0.85 over 8 cards.
_LASTING = 0.08
_PASSING = 0.08


class ExpertLoad:
    """Shares of the token copies per sampled layer and card."""

    def __init__(self, ranks: int, seed: int) -> None:
        self._ranks = ranks
        self._rng = random.Random(seed)
        self._taste = [[self._rng.gauss(0, _LASTING) for _ in range(ranks)] for _ in SAMPLED_LAYERS]
        self._hot: tuple[int, float] | None = None

    def concentrate(self, rank: int, share: float | None) -> None:
        """Sends `share` of all copies to one card's experts from now on; None ends it."""
        self._hot = None if share is None else (rank, share)

    def rows(self, tokens: int) -> list[list[int]]:
        """Copies per sampled layer and card for one step of `tokens` tokens over all ranks."""
        copies = tokens * TOP_K
        return [[round(copies * share) for share in self._shares(taste)] for taste in self._taste]

    def _shares(self, taste: list[float]) -> list[float]:
        weights = [math.exp(x + self._rng.gauss(0, _PASSING)) for x in taste]
        total = sum(weights)
        shares = [w / total for w in weights]
        if self._hot is not None:
            rank, share = self._hot
            others = 1 - shares[rank]
            shares = [share if r == rank else x * (1 - share) / others for r, x in enumerate(shares)]
        return shares


def hottest(rows: list[list[int]]) -> float:
    """Copies on the hottest card, mean over the sampled layers: what every layer waits for."""
    return sum(max(layer) for layer in rows) / len(rows)


def balancedness(rows: list[list[int]]) -> float | None:
    """Mean over layers of mean / max of the cards' loads: 1 is level. None when nothing was routed."""
    if not all(any(layer) for layer in rows):
        return None
    return sum(sum(layer) / len(layer) / max(layer) for layer in rows) / len(rows)
