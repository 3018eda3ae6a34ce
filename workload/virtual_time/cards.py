"""The virtual cards of `workload.device.virtual`, with the roofline's sum taken apart so that a healthy step costs a few operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workload.config import ClusterConfig
from workload.device import Work
from workload.device.experts import TOP_K, ExpertLoad
from workload.device.roofline import Roofline
from workload.device.state import HEALTHY
from workload.virtual_time.hosts import Array
from workload.wire import CardOrder, Hotspot, Stretch

NOISE = 0.015  # spread of a step's duration, as `workload.device.virtual` has it
_DRAWS = 2000  # steps whose noise is drawn at a time
_PERIOD = 50  # steps whose chances are drawn at a time: as many as a mix of traffic lasts
_LARGE = 10**9  # a load that nothing else can be seen beside: the roofline's slopes are read there


class Experts(ExpertLoad):
    """The same popularity, mix and placement; what chance adds to a batch is the multinomial's normal limit, drawn in advance.

    A step has hundreds of token copies or more, so that no card's part is small.
    """

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config.ranks, config.seed, config.experts)
        self._chances = np.random.default_rng(config.seed + 2)
        self._known: object = None
        self._next = _PERIOD
        self._usual = 0  # copies of the last decode step
        self._drawn: Array = np.zeros(0)
        self._hottest: list[list[float]] = []

    def hottest(self, tokens: int) -> list[float]:
        """Copies on the hottest card, per sampled layer, for one decode step of `tokens` tokens over all ranks.

        The part of chance is taken from a step as large as the last ones, which decodes resemble to a tenth or so.
        """
        self._turn(tokens)
        copies = tokens * TOP_K
        if self._hot is not None:
            return [max(layer) for layer in self.copies(tokens)]
        self._usual = copies
        return [copies * share for share in self._hottest[self._next - 1]]

    def draw(self, tokens: int) -> list[list[float]]:
        """Copies per sampled layer and card, for any step."""
        self._turn(tokens)
        return self.copies(tokens)

    def copies(self, tokens: int) -> list[list[float]]:
        """The same for the step that was drawn last."""
        copies = tokens * TOP_K
        if self._hot is not None:
            return [[float(n) for n in self._deal(copies, shares)] for shares in self._cards]
        chance = self._drawn[self._next - 1]
        return (copies * self._shares + copies**0.5 * chance).tolist()  # type: ignore[no-any-return]

    def _turn(self, tokens: int) -> None:
        """Goes on to the next step."""
        self.step()
        if self._known is not self._cards or self._next == _PERIOD:
            self._known = self._cards
            self._shares: Array = np.array(self._cards)
            drawn = np.sqrt(self._shares) * self._chances.standard_normal((_PERIOD, *self._shares.shape))
            self._drawn = drawn - self._shares * drawn.sum(axis=2, keepdims=True)  # what one card gets more, the others get less
            usual = self._usual or tokens * TOP_K
            self._hottest = (self._shares + self._drawn / usual**0.5).max(axis=2).tolist()
            self._next = 0
        self._next += 1


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
        self._parts = {prefill: self._part(0.0, prefill=prefill) for prefill in (False, True)}
        self._per_row = {prefill: (self._part(_LARGE, prefill=prefill) - self._parts[prefill]) / _LARGE for prefill in (False, True)}

    def order(self, order: Hotspot | Stretch | CardOrder) -> None:
        """Obeys a fault, from the next step on."""
        if isinstance(order, Hotspot):
            self._experts.concentrate(order.rank, order.share)
        elif isinstance(order, Stretch):
            self.stretch = order.factor
        else:
            self._states[order.rank] = self._states[order.rank].after(order)
            self._ill = any(state != HEALTHY for state in self._states)

    def step(
        self, tokens: Sequence[int], total: int, pairs: Sequence[int], extending: Sequence[int], *, graph: bool
    ) -> tuple[float, list[float]]:
        """Seconds of one step of the group, and the copies on the hottest card per sampled layer.

        `total` is the sum of `tokens`. The ranks `extending` prefill; what the others have is decode.
        """
        if self._ill or not (self._linear or extending):
            works = [
                Work(prefill_tokens=n, prefill_pairs=p, graph=graph) if r in extending else Work(n, p, graph=graph)
                for r, (n, p) in enumerate(zip(tokens, pairs, strict=True))
            ]
            copies = self._experts.draw(total)
            return self._roofline.step(works, copies, self._states) * self._scatter(), [max(layer) for layer in copies]
        prefill = bool(extending)
        hottest = [max(layer) for layer in self._experts.draw(total)] if prefill else self._experts.hottest(total)
        experts = self._parts[prefill] + sum(hottest) / len(hottest) * self._per_row[prefill]
        layer = self._attention(tokens, pairs, extending) + experts
        model = self._roofline.model
        return (model.fixed + (0.0 if graph else model.eager) + self._layers * layer) * self._scatter(), hottest

    def copies(self, tokens: int) -> list[list[float]]:
        """Copies per sampled layer and card of the last step, which had so many tokens over all ranks."""
        return self._experts.copies(tokens)

    def _attention(self, tokens: Sequence[int], pairs: Sequence[int], extending: Sequence[int]) -> float:
        """Seconds of one layer's attention on the slowest card, all of them well."""
        weights, per_token, per_pair = self._weights, self._per_token, self._per_pair
        if not extending and max(tokens) * per_token <= weights:
            return weights + max(pairs) * per_pair
        costs = [max(weights, n * per_token) + p * per_pair for n, p in zip(tokens, pairs, strict=True)]
        for r in extending:
            costs[r] = max(weights, tokens[r] * per_token) + pairs[r] * self._per_prefill_pair
        return max(costs)

    def _part(self, rows: float, *, prefill: bool) -> float:
        """Seconds of one layer's dispatch, experts and combine on the card that receives `rows` copies."""
        r = self._roofline
        return r.dispatch(rows) + r.experts(rows, prefill=prefill) + r.combine(rows)

    def _scatter(self) -> float:
        if not self._noise:
            self._noise = (1 + self._chances.normal(0, NOISE, _DRAWS)).tolist()
        return self._noise.pop() * self.stretch
