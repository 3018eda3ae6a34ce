"""How one virtual card is doing, and what each order of `workload.control` makes of it. Pure.

The fabric keeps one state per card to know how long its work takes; the front end keeps another, fed with the same orders, to say what
the card's own sensors would say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntFlag

from workload.wire import CardOrder, DegradeLink, Delay, Incast, SlowMemory, Throttle, Xid


class Reason(IntFlag):
    """Why a card's clocks are lower than asked for: NVML's nvmlClocksEventReasons, which DCGM passes on."""

    IDLE = 0x1
    POWER_CAP = 0x4  # by software, at the power limit: usual under full load, and no fault
    HW_SLOWDOWN = 0x8
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    POWER_BRAKE = 0x80  # asked for from outside, by the power supply


# What an XID says about the memory and the links, from NVIDIA's XID catalogue
_DOUBLE_BIT = {48, 94, 95}  # double-bit error; contained; not contained
_REMAP_FAILED = {64}


@dataclass(frozen=True, slots=True)
class CardState:
    """Factors are 1 on a healthy card and smaller on a slow one; rates are events per second."""

    clock: float = 1.0  # of the SM clock
    memory: float = 1.0  # of the memory's bandwidth
    link: float = 1.0  # of the speed of its part in every collective
    delay: float = 0.0  # seconds more in every step
    incast: float = 1.0  # how many times as long the dispatch into this card takes: 1 or more
    reasons: int = 0
    xid: int = 0  # the last one; 0: none
    single_bit: float = 0.0  # corrected ECC errors
    double_bit: int = 0  # uncorrected ECC errors until now
    remap_failed: bool = False
    crc: float = 0.0  # NVLink checksum errors
    replays: float = 0.0  # PCIe retries

    def after(self, order: CardOrder) -> CardState:
        """The state once the order has been carried out. Uncorrected errors and a failed remap stay until the card is replaced."""
        match order:
            case Throttle(clock=clock, reasons=reasons):
                return replace(self, clock=clock, reasons=reasons)
            case SlowMemory(factor=factor, single_bit=rate):
                return replace(self, memory=factor, single_bit=rate)
            case DegradeLink(factor=factor, crc=crc, replays=replays):
                return replace(self, link=factor, crc=crc, replays=replays)
            case Incast(factor=factor):
                return replace(self, incast=factor)
            case Delay(seconds=seconds):
                return replace(self, delay=seconds)
            case Xid(code=code):
                double_bit = self.double_bit + (code in _DOUBLE_BIT)
                return replace(self, xid=code, double_bit=double_bit, remap_failed=self.remap_failed or code in _REMAP_FAILED)

    @property
    def read_factor(self) -> float:
        """Share of its bandwidth at which the card's kernels read: slow memory, or SMs too slow to keep it busy."""
        return min(self.memory, self.clock / _SATURATES, 1.0)


_SATURATES = 0.6  # share of their clock at which the SMs still keep the memory busy. An assumption, not a measurement

HEALTHY = CardState()
