"""The virtual cards of `workload.device.virtual`, with the roofline's sum taken apart so that a healthy step costs a few operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workload.config import ClusterConfig
from workload.device import Work
from workload.device.experts import MIX_STEPS, TOP_K, ExpertLoad
from workload.device.roofline import Roofline
from workload.device.state import HEALTHY
from workload.virtual_time.hosts import Array
from workload.wire import CardOrder, Hotspot, Stretch

NOISE = 0.015  # spread of a step's duration, as `workload.device.virtual` has it
_DRAWS = 2000  # steps whose noise is drawn at a time
_LARGE = 10**9  # a load that nothing else can be seen beside: the roofline's slopes are read there


class Experts(ExpertLoad):
    """The same popularity, mix and placement; what chance adds to a batch is the multinomial's normal limit, drawn in advance.

    A step has hundreds of token copies or more, so that no card's part is small.
    """

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config.ranks, config.seed, config.experts)
        self._chances = np.random.default_rng(config.seed + 2)
        self._usual = 0  # copies of the last decode step
        # of the steps with the present mix, drawn all at once: what chance adds, and shares of the hottest card with balancedness
        self._drawn: Array = np.zeros(0)
        self._decodes: list[tuple[float, float]] = []
        self._next = 0  # in those lists

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
            share = max([share + part * chance for share, chance in zip(shares, chances, strict=True)])
            total += share
            level += 1 / (self._ranks * share)
        return copies * total / len(self._cards), level / len(self._cards)

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
        drawn: Array = copies * np.array(self._cards) + copies**0.5 * self._drawn[self._next - 1]
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
        if self._decodes:
            self.drift()
        else:
            steps -= 1  # as `ExpertLoad` counts them
        # cards x layers x steps: sums and maxima over the cards are quick when those are the first axis
        shares = np.array(self._cards).T[:, :, None]
        self._shares = [layer.tolist() for layer in self._cards]
        drawn = np.ascontiguousarray(self._chances.standard_normal((MIX_STEPS, *self._mix.shape[:1], self._ranks)).T)
        drawn = np.sqrt(shares) * drawn
        drawn -= shares * drawn.sum(axis=0)  # what one card gets more, the others get less
        hottest = (shares + drawn / usual**0.5).max(axis=0)
        layers = len(hottest)  # means by hand: numpy's own takes three times as long for so few numbers
        most, level = hottest.sum(axis=0) / layers, (1 / (self._ranks * hottest)).sum(axis=0) / layers
        self._decodes = list(zip(most.tolist(), level.tolist(), strict=True))[:steps]
        self._drawn = drawn.T
        self._next = 0


class Cards:
    """How long a step takes."""

    def __init__(self, config: ClusterConfig) -> None:
        self.stretch = 1.0
        self._experts = Experts(config)
        self._roofline = roofline = Roofline.of(config)
        self._states = [HEALTHY] * config.ranks
        self._ill = False
        self._chances = np.random.default_rng(config.seed + 1)
        self._noise: list[float] = []
        self._layers = roofline.model.layers
        self._weights = roofline.attention(Work())
        self._per_token = roofline.attention(Work(decode_tokens=_LARGE)) / _LARGE
        self._per_pair = (roofline.attention(Work(decode_pairs=_LARGE)) - self._weights) / _LARGE
        self._per_prefill_pair = (roofline.attention(Work(prefill_pairs=_LARGE)) - self._weights) / _LARGE
        self._linear = config.experts.dispatch == "normal"  # else a decode's experts have a floor
        self._decode_part, self._decode_row = self._part(prefill=False)
        self._prefill_part, self._prefill_row = self._part(prefill=True)
        self._graph, self._eager = roofline.model.fixed, roofline.model.fixed + roofline.model.eager  # what a step costs beside its layers

    def order(self, order: Hotspot | Stretch | CardOrder) -> None:
        """Obeys a fault, from the next step on."""
        if isinstance(order, Hotspot):
            self._experts.concentrate(order.rank, order.share)
        elif isinstance(order, Stretch):
            self.stretch = order.factor
        else:
            self._states[order.rank] = self._states[order.rank].after(order)
            self._ill = any(state != HEALTHY for state in self._states)

    def plain(self, widest: int) -> bool:
        """Whether `decode` can tell: all cards are well, and of at most `widest` rows a rank the KV is all that attention has to read."""
        return not self._ill and self._linear and widest * self._per_token <= self._weights

    def decode(self, total: int, most: int, *, graph: bool) -> tuple[float, float]:
        """`step` for decodes alone on `plain` cards: of `total` rows, the longest rank having `most` pairs."""
        rows, level = self._experts.decode(total)
        layer = self._weights + most * self._per_pair + self._decode_part + rows * self._decode_row
        if not self._noise:
            self._draw_noise()
        return ((self._graph if graph else self._eager) + self._layers * layer) * (self._noise.pop() * self.stretch), level

    def step(
        self, tokens: Sequence[int], total: int, pairs: Sequence[int], extending: Sequence[int], *, graph: bool
    ) -> tuple[float, float]:
        """Seconds of one step of the group, and its balancedness.

        `total` is the sum of `tokens`. The ranks `extending` prefill; what the others have is decode.
        """
        if not extending and self.plain(max(tokens)):
            return self.decode(total, max(pairs), graph=graph)
        if self._ill or not (self._linear or extending):
            works = [
                Work(prefill_tokens=n, prefill_pairs=p, graph=graph) if r in extending else Work(n, p, graph=graph)
                for r, (n, p) in enumerate(zip(tokens, pairs, strict=True))
            ]
            copies, level = self._experts.draw(total)
            return self._roofline.step(works, copies, self._states) * self._scatter(), level
        prefill = bool(extending)
        rows, level = self._experts.prefill(total) if prefill else self._experts.decode(total)
        part, per_row = (self._prefill_part, self._prefill_row) if prefill else (self._decode_part, self._decode_row)
        layer = self._attention(tokens, pairs, extending) + part + rows * per_row
        return ((self._graph if graph else self._eager) + self._layers * layer) * self._scatter(), level

    def copies(self, tokens: int) -> Array:
        """Copies per sampled layer and card of the last step, which had so many tokens over all ranks."""
        return self._experts.copies(tokens)

    def _attention(self, tokens: Sequence[int], pairs: Sequence[int], extending: Sequence[int]) -> float:
        """Seconds of one layer's attention on the slowest card, all of them well."""
        weights, per_token, per_pair = self._weights, self._per_token, self._per_pair
        prefills = [max(weights, tokens[r] * per_token) + pairs[r] * self._per_prefill_pair for r in extending]
        decodes = list(tokens)
        for r in extending:
            decodes[r] = 0
        if max(decodes) * per_token <= weights:  # then the KV alone tells them apart
            others = list(pairs)
            for r in extending:
                others[r] = 0
            return max(weights + max(others) * per_pair, *prefills)
        costs = [max(weights, n * per_token) + p * per_pair for n, p in zip(decodes, pairs, strict=True)]
        for r, cost in zip(extending, prefills, strict=True):
            costs[r] = cost
        return max(costs)

    def _part(self, *, prefill: bool) -> tuple[float, float]:
        """Seconds of one layer's dispatch, experts and combine on a card that receives no copies, and for each copy more."""
        r = self._roofline
        none, many = (r.dispatch(rows) + r.experts(rows, prefill=prefill) + r.combine(rows) for rows in (0.0, _LARGE))
        return none, (many - none) / _LARGE

    def _scatter(self) -> float:
        if not self._noise:
            self._draw_noise()
        return self._noise.pop() * self.stretch

    def _draw_noise(self) -> None:
        self._noise = (1 + self._chances.normal(0, NOISE, _DRAWS)).tolist()
