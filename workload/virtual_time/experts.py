"""The experts of `workload.device.experts`, drawn for many steps at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workload.config import ClusterConfig
from workload.device.experts import MIX_STEPS, TOP_K, ExpertLoad
from workload.virtual_time.hosts import Array

_AHEAD = 64  # mixes times cards that are drawn at a time: for 8 cards 50 KB, which stays in a core's own cache


class Experts(ExpertLoad):
    """The same popularity, mix and placement; what chance adds to a batch is the multinomial's normal limit, drawn in advance.

    A step has hundreds of token copies or more, so that no card's part is small.
    """

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config.ranks, config.seed, config.experts)
        self._chances = np.random.default_rng(config.seed + 2)
        self._usual = 0  # copies of the last decode step
        self._ahead: list[tuple[Array, Array, Array]] = []  # mixes to come, the next one last: their mix, cards and noise
        self._begun = 0  # of those drawn with them
        self._before = self._states()  # of the generators, then
        # of the steps with the present mix: what chance adds, and shares of the hottest card with balancedness
        self._drawn: Array = np.zeros(0)
        self._decodes: list[tuple[float, float]] = []
        self._next = 0  # in those lists

    def concentrate(self, rank: int, share: float | None) -> None:
        # a hot card's copies come from the same generator as the mixes, so that nothing may be drawn ahead meanwhile
        super().concentrate(rank, share)
        if self._ahead:
            self._rng.bit_generator.state, self._chances.bit_generator.state = self._before
            self._fresh(self._begun)
            self._noise(self._begun)
            self._ahead.clear()

    def decode(self, tokens: int) -> tuple[float, float]:
        """Copies on the hottest card and balancedness, both means of the sampled layers, for a decode of `tokens` tokens over all ranks.

        The part of chance is taken from a step as large as the last ones, which decodes resemble to a tenth or so.
        """
        now, copies = self._next, tokens * TOP_K
        if now == len(self._decodes):
            self._draw(self._usual or copies)
            now = 0
        self._next = now + 1
        if self._hot is not None:
            return self._highest(self.copies(tokens).tolist())
        self._usual = copies
        share, level = self._decodes[now]
        return copies * share, level

    def prefill(self, tokens: int) -> tuple[float, float]:
        """The same for a step in which some rank extends."""
        self._turn(tokens)
        if self._hot is not None:
            return self._highest(self.copies(tokens).tolist())
        copies = tokens * TOP_K
        part, total, level = copies**-0.5, 0.0, 0.0
        for shares, chances in zip(self._shares, self._drawn[self._next - 1].tolist(), strict=True):
            share = max([share + part * chance for share, chance in zip(shares, chances, strict=False)])  # unchecked, which is quicker
            total += share
            level += 1 / (self._ranks * share)
        return copies * total / len(self._shares), level / len(self._shares)

    def draw(self, tokens: int) -> tuple[list[list[float]], float]:
        """Copies per sampled layer and card, for any step, and their balancedness."""
        self._turn(tokens)
        copies: list[list[float]] = self.copies(tokens).tolist()
        return copies, self._highest(copies)[1]

    def copies(self, tokens: int) -> Array:
        """The same for the step that was drawn last; layers x cards."""
        copies = tokens * TOP_K
        if self._hot is not None:
            return np.array([self._deal(copies, shares) for shares in self._cards], dtype=float)
        drawn: Array = copies * self._cards + copies**0.5 * self._drawn[self._next - 1]
        return drawn

    def _highest(self, copies: list[list[float]]) -> tuple[float, float]:
        most = [max(layer) for layer in copies]
        return sum(most) / len(most), sum(sum(layer) / self._ranks / max(layer) for layer in copies) / len(most)

    def _turn(self, tokens: int) -> None:
        """Goes on to the next step."""
        if self._next == len(self._decodes):
            self._draw(self._usual or tokens * TOP_K)
        self._next += 1

    def _draw(self, usual: int) -> None:
        """Draws for all steps that the next mix lasts, decodes having `usual` copies."""
        steps = MIX_STEPS
        if not self._decodes:
            steps -= 1  # of the first mix, as `ExpertLoad` counts them
            noise = self._spread(self._cards[None], self._noise(1))[0]
        else:
            if not self._ahead:
                self._look_ahead()
            self._mix, self._cards, noise = self._ahead.pop()
            self._begun += 1
        self._shares = self._cards.tolist()
        hottest = np.maximum.reduce(self._cards.T[:, :, None] + noise / usual**0.5)
        layers = len(hottest)  # means by hand: numpy's own takes three times as long for so few numbers
        most, level = np.add.reduce(hottest) / layers, np.add.reduce(1 / (self._ranks * hottest)) / layers
        self._decodes = list(zip(most.tolist(), level.tolist(), strict=True))[:steps]
        self._drawn = noise.T
        self._next = 0

    def _look_ahead(self) -> None:
        """Draws mixes to come: as many at a time as pays, one while a card is hot."""
        count = 1 if self._hot else max(1, _AHEAD // self._ranks)
        self._before, self._begun = self._states(), 0
        mixes = self._mixes(count)
        cards = self._card_shares(mixes)
        self._ahead = list(zip(mixes, cards, self._spread(cards, self._noise(count)), strict=True))[::-1]

    def _states(self) -> tuple[Mapping[str, object], Mapping[str, object]]:
        return self._rng.bit_generator.state, self._chances.bit_generator.state

    def _noise(self, count: int) -> Array:
        """Standard normal: mixes x cards x layers x steps. Sums and maxima over the cards are quick when those are not the last axis."""
        return np.ascontiguousarray(self._chances.standard_normal((count, MIX_STEPS, len(self._cards), self._ranks)).transpose(0, 3, 2, 1))

    def _spread(self, cards: Array, noise: Array) -> Array:
        """What chance adds to the cards' shares (mixes x layers x cards) of one copy: what one card gets more, the others get less."""
        shares = cards.transpose(0, 2, 1)[..., None]
        noise = np.sqrt(shares) * noise
        noise -= shares * np.add.reduce(noise, axis=1, keepdims=True)
        return noise
