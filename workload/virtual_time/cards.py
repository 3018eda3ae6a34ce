"""The virtual cards of `workload.device.virtual`, with the roofline's sum taken apart so that a healthy step costs a few operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workload.config import ClusterConfig
from workload.device import Work
from workload.device.roofline import Roofline
from workload.device.state import HEALTHY
from workload.virtual_time.experts import Experts
from workload.virtual_time.hosts import Array
from workload.wire import CardOrder, Hotspot, Stretch

NOISE = 0.015  # spread of a step's duration, as `workload.device.virtual` has it
_DRAWS = 2000  # steps whose noise is drawn at a time
_LARGE = 10**9  # a load that nothing else can be seen beside: the roofline's slopes are read there


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

    def step(
        self, tokens: Sequence[int], total: int, widest: int, pairs: Sequence[int], extending: Sequence[int], *, graph: bool
    ) -> tuple[float, float]:
        """Seconds of one step of the group, and its balancedness.

        `total` is the sum of `tokens`, `widest` their maximum. The ranks `extending` prefill; what the others have is decode.
        """
        if self._linear and not (extending or self._ill) and widest * self._per_token <= self._weights:
            # as nearly always: the KV alone tells the cards apart
            rows, level = self._experts.decode(total)
            layer = self._weights + max(pairs) * self._per_pair + self._decode_part + rows * self._decode_row
            if not self._noise:
                self._draw_noise()
            return ((self._graph if graph else self._eager) + self._layers * layer) * (self._noise.pop() * self.stretch), level
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
        prefill = 0.0  # of the slowest that extends
        decodes, others = [*tokens], [*pairs]
        for r in extending:
            prefill = max(prefill, max(weights, tokens[r] * per_token) + pairs[r] * self._per_prefill_pair)
            decodes[r] = others[r] = 0
        if max(decodes) * per_token <= weights:  # then the KV alone tells them apart
            return max(prefill, weights + max(others) * per_pair)
        return max(prefill, *[max(weights, n * per_token) + p * per_pair for n, p in zip(decodes, others, strict=True)])

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
