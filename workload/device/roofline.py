"""How long a step takes on cards that are not there. Pure arithmetic, layer by layer.

Within a layer each card does its own attention, then all meet (dispatch), each runs its experts, then all meet again (combine).
So a layer costs the slowest attention + the slowest dispatch + the slowest experts + the slowest combine, and the step costs the layers,
once each: a difference of a whole step's attention is paid once, not once a layer. A card that is not well does its own part slower,
and everybody pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from workload.config import ClusterConfig, DispatchMode
from workload.device import Work, catalogue
from workload.device.catalogue import Card
from workload.device.state import HEALTHY, CardState


@dataclass(frozen=True, slots=True)
class Model:
    """A GLM-5-like mixture of experts, FP8, one byte a parameter, spread over cards with data-parallel attention.

    Its experts are as large as the cards allow: a card holds the same share of its memory in weights whatever it is.
    """

    layers: int = 78
    kv_bytes: float = 576  # of compressed KV per token and layer (latent 512 + rope 64, one byte each)
    attention_bytes: float = 4e9 / 78  # per layer; every card holds all of it
    expert_bytes: float = 80e9 / 78  # per layer, one card's share; 84 GB a card with the attention, on one of 141 GB
    # One token copy through one expert: 31 MB of parameters, two FLOP each. Decode batches give an expert a handful of rows,
    # which kernels at half the BF16 rate pay; the full tiles of a prefill run at 75 % of the FP8 rate.
    row_flops: float = 62.5e6
    decode_rate: float = 0.50
    # A low-latency dispatch pads each expert's rows to a fixed shape: one tile of 8 rows for each of 32 experts on a card, at the
    # rate of full tiles. DeepEP's kernels have such a shape; the tile is an assumption.
    padded_rows: int = 32 * 8
    # Prefill attends with sparse kernels whose cost per pair is the index pass alone: 32 heads of 128, two FLOP, FP8.
    # Dense attention would cost some 15 times that. An assumption, not a measurement.
    prefill_pair_flops: float = 32 * 128 * 2
    hidden: float = 6144  # a dispatched copy takes a byte an element, a combined one two
    collective: float = 20e-6  # latency of one dispatch or combine inside a node, seconds; two a layer
    fixed: float = 0.5e-3  # embedding, head and sampling, per step
    eager: float = 4e-3  # what a step costs more when its kernels are launched one by one

    @property
    def weights(self) -> float:
        """Bytes on one card."""
        return self.layers * (self.attention_bytes + self.expert_bytes)

    @classmethod
    def on(cls, card: Card) -> Model:
        """The model whose weights take 84/141 of the card's memory, with experts as much smaller or larger as that needs."""
        usual = cls()
        experts = card.memory * (84 / 141) / usual.layers - usual.attention_bytes
        return cls(expert_bytes=experts, row_flops=usual.row_flops * experts / usual.expert_bytes)


@dataclass(frozen=True, slots=True)
class Roofline:
    card: Card = catalogue.CARDS[catalogue.DEFAULT]
    model: Model = Model()
    dispatch_mode: DispatchMode = "normal"

    @classmethod
    def of(cls, config: ClusterConfig) -> Roofline:
        return cls.on(catalogue.find(config.card), config.experts.dispatch).heavier(config.slowdown)

    @classmethod
    def on(cls, card: Card, dispatch: DispatchMode = "normal") -> Roofline:
        return cls(card, Model.on(card), dispatch)

    def heavier(self, times: float) -> Roofline:
        """With a model of so many times the bytes, the arithmetic and the pauses of everything: each step takes so many times as long,
        and what a token costs follows from its bytes and the card's bandwidth as before."""
        m = self.model
        model = replace(
            m,
            kv_bytes=m.kv_bytes * times,
            attention_bytes=m.attention_bytes * times,
            expert_bytes=m.expert_bytes * times,
            row_flops=m.row_flops * times,
            prefill_pair_flops=m.prefill_pair_flops * times,
            hidden=m.hidden * times,
            collective=m.collective * times,
            fixed=m.fixed * times,
            eager=m.eager * times,
        )
        return replace(self, model=model)

    @property
    def kv_tokens(self) -> int:
        """Tokens of the largest KV pool that fits on the card beside its weights."""
        return int((_MEMORY_USED * self.card.memory - self.model.weights) / self.kv_read(1))

    def check(self, kv_tokens: int) -> None:
        """Raises ValueError if a KV pool of so many tokens does not fit on the card beside its weights."""
        if kv_tokens > self.kv_tokens:
            raise ValueError(
                f"{self.card.name}: {self.model.weights / 1e9:.1f} GB of weights leave no room for {kv_tokens} KV tokens;"
                f" set limits.kv_tokens to {self.kv_tokens} or fewer"
            )

    def kv_read(self, pairs: int) -> float:
        """Bytes of KV that a decode step over `pairs` reads, all layers."""
        return pairs * self.model.kv_bytes * self.model.layers

    def attention(self, work: Work, state: CardState = HEALTHY) -> float:
        """Seconds of one layer's attention and dense part on one card."""
        memory = self.card.read_rate * state.read_factor
        compute = self._full_tiles(state)
        weights = self.model.attention_bytes / memory
        gemm = 2 * self.model.attention_bytes * work.tokens / compute
        decode = work.decode_pairs * self.model.kv_bytes / memory
        prefill = work.prefill_pairs * self.model.prefill_pair_flops / compute
        return max(weights, gemm) + decode + prefill

    def experts(self, rows: float, state: CardState = HEALTHY, *, prefill: bool) -> float:
        """Seconds of one layer's experts on a card that receives `rows` token copies.

        Reading the weights and working on the rows are added up: groups of a few rows do not hide one behind the other. With a
        low-latency dispatch a decode step pays the fixed shape, so that a hot card only wastes less of it.
        """
        weights = self.model.expert_bytes / (self.card.read_rate * state.read_factor)
        full = self.model.row_flops / self._full_tiles(state)
        if prefill:
            return weights + rows * full
        if self.dispatch_mode == "low_latency":
            return weights + max(rows, self.model.padded_rows) * full
        return weights + rows * self.model.row_flops / (self.card.bf16 * self.model.decode_rate * state.clock)

    def dispatch(self, rows: float, state: CardState = HEALTHY) -> float:
        """Seconds until one card has received the `rows` token copies of a layer, one byte an element."""
        return state.incast * self._transfer(rows * self.model.hidden, state)

    def combine(self, rows: float, state: CardState = HEALTHY) -> float:
        """Seconds until one card has sent the results of `rows` token copies back, two bytes an element."""
        return self._transfer(2 * rows * self.model.hidden, state)

    def step(self, works: Sequence[Work], rows: Sequence[Sequence[float]], states: Sequence[CardState] | None = None) -> float:
        """Seconds of one step of the group. `rows[l][r]`: copies that sampled layer l sends to card r."""
        states = [HEALTHY] * len(works) if states is None else states
        prefill = any(w.prefill_tokens for w in works)
        attention = max(map(self.attention, works, states))
        experts = sum(self._expert_part(layer, states, prefill=prefill) for layer in rows) / len(rows)
        eager = 0.0 if all(w.graph for w in works) else self.model.eager
        delay = max(state.delay for state in states)
        return self.model.fixed + eager + delay + self.model.layers * (attention + experts)

    def _expert_part(self, layer: Sequence[float], states: Sequence[CardState], *, prefill: bool) -> float:
        return (
            max(map(self.dispatch, layer, states))
            + max(self.experts(rows, state, prefill=prefill) for rows, state in zip(layer, states, strict=True))
            + max(map(self.combine, layer, states))
        )

    def _full_tiles(self, state: CardState) -> float:
        """FLOP per second of large FP8 GEMM."""
        return self.card.fp8 * self.card.compute_efficiency * state.clock

    def _transfer(self, size: float, state: CardState) -> float:
        return (self.model.collective + size / (self.card.link * _LINK_EFFICIENCY)) / state.link


_LINK_EFFICIENCY = 0.8  # of the link's one-way peak: what all-to-all kernels reach inside a node with large messages, rounded
_MEMORY_USED = 0.9  # SGLang's usual --mem-fraction-static on large cards: weights and KV pool; the rest is for activations
