"""Cards played by this machine's cores: numpy really reads KV and multiplies experts.

Sizes are scaled down so that 4 ranks on 2 cores step in about 50 ms; what matters is that time follows pairs and rows, and that cards
wait for each other.
"""

from __future__ import annotations

import numpy as np

from workload.device import Work

_KV = (65_536, 64)  # rows of 256 bytes, one per pair of a decode step; read again and again where there are more pairs
_PREFILL_DISCOUNT = 5  # a prefill's pairs cost a fifth of a decode's, as in the roofline
_EXPERTS = (16, 512, 512)  # matrices of one card: 16 MiB, read in every group whatever there is to do
_DECODE_COPIES = 4  # multiplied rows per token copy in a decode step; in a prefill, whose rows fill their tiles, one


class CpuKernels:
    """One card's work, done when a call returns."""

    groups = 4

    def __init__(self, rank: int) -> None:
        rng = np.random.default_rng(rank)
        self._kv = rng.random(_KV, dtype=np.float32)
        self._query = rng.random(_KV[1], dtype=np.float32)
        self._weights = rng.random(_EXPERTS, dtype=np.float32)

    def begin(self) -> None:
        pass

    def attention(self, work: Work) -> None:
        rows = work.decode_pairs + work.prefill_pairs // _PREFILL_DISCOUNT
        while rows > 0:
            self._kv[:rows].dot(self._query)
            rows -= len(self._kv)

    def experts(self, rows: int, *, decode: bool) -> None:
        experts, width, _ = _EXPERTS
        rows *= _DECODE_COPIES if decode else 1
        np.matmul(np.ones((experts, max(1, rows // experts), width), dtype=np.float32), self._weights)

    def exchange(self, rows: list[int]) -> bool:  # noqa: ARG002
        return False

    def finish(self) -> None:
        pass

    def span(self) -> float | None:
        return None
