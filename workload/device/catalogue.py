"""The cards that a cluster can pretend to have: data-sheet figures, and the share of them that kernels reach."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

DEFAULT = "H20-3e"


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator. Rates are the vendor's dense peaks per second; `name` is what a driver calls it.

    `link` is what a card can send to its peers inside a node while it receives as much. Clocks (MHz) and watts are what management
    tools show: the highest SM clock, the memory's clock, and the power limit.
    """

    name: str
    memory: float  # bytes
    bytes_per_second: float
    bf16: float  # FLOP per second
    fp8: float  # as bf16 where the card has no FP8: weights are unpacked and multiplied in BF16
    link: float  # bytes per second
    sm_clock: int
    mem_clock: int
    watts: int
    # FlashMLA's authors measured 0.9 of an H800's bandwidth for one kernel at its best; small batches reach less than half. 0.625 of
    # 4.8 TB/s are 3.0 TB/s: an assumption about all kernels of a decode step together, not a measurement.
    memory_efficiency: float = 0.625
    compute_efficiency: float = 0.75  # large GEMM in practice, of the dense peak

    @property
    def read_rate(self) -> float:
        """Bytes per second that the kernels of a healthy card read."""
        return self.bytes_per_second * self.memory_efficiency

    @property
    def nvidia(self) -> bool:
        """Whether NVIDIA's tools, DCGM among them, know it."""
        return self.name.startswith("NVIDIA")


# From the vendors' data sheets (dense figures, without sparsity). Memory clocks are what nvidia-smi shows: twice the clock times the bus
# width (5,120 bits on A100 and H100, 6,144 on H20 and H200, 8,192 on B200) gives the bandwidth within 3 %. That of the H20-3e is inferred
# from its bandwidth, which is an H200's.
CARDS: dict[str, Card] = {
    "A100": Card("NVIDIA A100-SXM4-80GB", 80e9, 2.039e12, 312e12, 312e12, 300e9, 1410, 1593, 400),
    "B200": Card("NVIDIA B200", 180e9, 8.0e12, 2250e12, 4500e12, 900e9, 1965, 3996, 1000),
    "H100": Card("NVIDIA H100 80GB HBM3", 80e9, 3.35e12, 989e12, 1979e12, 450e9, 1980, 2619, 700),
    "H20": Card("NVIDIA H20", 96e9, 4.0e12, 148e12, 296e12, 450e9, 1980, 2619, 500),
    "H20-3e": Card("NVIDIA H20-3e", 141e9, 4.8e12, 148e12, 296e12, 450e9, 1980, 3201, 500),
    "H200": Card("NVIDIA H200", 141e9, 4.8e12, 989e12, 1979e12, 450e9, 1980, 3201, 700),
    "MI300X": Card("AMD Instinct MI300X", 192e9, 5.3e12, 1307e12, 2615e12, 448e9, 2100, 1300, 750),
}


def find(name: str) -> Card:
    """The card of that key. Raises ValueError with the nearest key."""
    if name in CARDS:
        return CARDS[name]
    near = difflib.get_close_matches(name.upper(), CARDS, n=1, cutoff=0.3)
    raise ValueError(f"no card {name!r}" + (f"; did you mean {near[0]!r}?" if near else "") + f" There are {', '.join(CARDS)}")
