"""How long a step takes on cards that are not there. Pure arithmetic, layer by layer.

Within a layer each card does its own attention, then all meet (dispatch), each runs its experts, then all meet again (combine).
So a layer costs the slowest attention + the slowest experts + the communication, and the step costs the layers, once each:
a difference of a whole step's attention is paid once, not once a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workload.device import Work


@dataclass(frozen=True, slots=True)
class Card:
    """An H20-3e-like card, with the share of its peaks that kernels reach."""

    bytes_per_second: float = 4.0e12  # HBM3e
    flops: float = 148e12  # dense BF16; FP8 is twice that
    efficiency: float = 0.75  # good streaming and GEMM kernels reach 70-80 % of the data sheet


@dataclass(frozen=True, slots=True)
class Model:
    """A GLM-5-like mixture of experts, FP8, one byte a parameter, spread over cards with data-parallel attention."""

    layers: int = 78
    kv_bytes: int = 576  # of compressed KV per token and layer (latent 512 + rope 64, one byte each)
    attention_bytes: float = 4e9 / 78  # per layer; every card holds all of it
    expert_bytes: float = 80e9 / 78  # per layer, this card's share; 84 GB a card with the attention
    # One token copy through one expert: 31 MB of parameters, two FLOP each. Decode batches give an expert a handful of rows,
    # which kernels at half the BF16 rate pay; the full tiles of a prefill run at 75 % of the FP8 rate.
    decode_row: float = 62.5e6 / (148e12 * 0.50)  # 0.84 us
    prefill_row: float = 62.5e6 / (296e12 * 0.75)  # 0.28 us
    # Prefill attends with sparse kernels whose cost per pair is the index pass alone: 32 heads of 128, two FLOP, FP8.
    # Dense attention would cost some 15 times that. An assumption, not a measurement.
    prefill_pair_flops: float = 32 * 128 * 2
    collective: float = 22e-6  # one dispatch or combine of a small batch inside a node, seconds; two a layer
    fixed: float = 0.5e-3  # embedding, head and sampling, per step
    eager: float = 4e-3  # what a step costs more when its kernels are launched one by one


@dataclass(frozen=True, slots=True)
class Roofline:
    card: Card = Card()
    model: Model = Model()

    def kv_read(self, pairs: int) -> int:
        """Bytes of KV that a decode step over `pairs` reads, all layers."""
        return pairs * self.model.kv_bytes * self.model.layers

    def attention(self, work: Work) -> float:
        """Seconds of one layer's attention and dense part on one card."""
        memory = self.card.bytes_per_second * self.card.efficiency
        compute = 2 * self.card.flops * self.card.efficiency
        weights = self.model.attention_bytes / memory
        gemm = 2 * self.model.attention_bytes * work.tokens / compute
        decode = work.decode_pairs * self.model.kv_bytes / memory
        prefill = work.prefill_pairs * self.model.prefill_pair_flops / compute
        return max(weights, gemm) + decode + prefill

    def experts(self, rows: float, *, prefill: bool) -> float:
        """Seconds of one layer's experts on a card that receives `rows` token copies.

        Reading the weights and working on the rows are added up: groups of a few rows do not hide one behind the other.
        """
        weights = self.model.expert_bytes / (self.card.bytes_per_second * self.card.efficiency)
        return weights + rows * (self.model.prefill_row if prefill else self.model.decode_row)

    def step(self, works: Sequence[Work], hottest_rows: float) -> float:
        """Seconds of one step of the group; `hottest_rows` are the copies on the most loaded card, per layer."""
        prefill = any(w.prefill_tokens for w in works)
        layer = max(self.attention(w) for w in works) + self.experts(hottest_rows, prefill=prefill) + 2 * self.model.collective
        eager = 0.0 if all(w.graph for w in works) else self.model.eager
        return self.model.fixed + eager + self.model.layers * layer
