"""What one look at a node's cards says, whoever was asked, and what the driver's codes mean. Pure.

Sources: NVIDIA's NVML documentation (nvmlClocksEventReasons), its XID catalogue, dcgm_fields.h; see docs/hardware.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from math import isfinite

from collector import signals
from collector.model import Problem

MAX_CARDS = 256
"""Cards of one page. A node has up to 16, a rack that one exporter speaks for 72; a hostile page cannot make us hold more."""

MHZ = 1e6


class Reason(IntFlag):
    """Why a card's clocks are lower than the most: the bits of NVML's nvmlClocksEventReasons, which DCGM passes on."""

    IDLE = 0x1
    CLOCKS_SETTING = 0x2  # somebody set application clocks
    POWER_CAP = 0x4  # by software, at the power limit: usual under full load, no fault
    HW_SLOWDOWN = 0x8  # heat, power brake, or a power supply that falls behind: by hardware
    SYNC_BOOST = 0x10  # kept equal with the cards of its group
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    POWER_BRAKE = 0x80  # asked for from outside, by the server's power supply
    DISPLAY = 0x100


BITS: Mapping[str, Reason] = {
    signals.CARD_THERMAL: Reason.SW_THERMAL | Reason.HW_THERMAL,
    signals.CARD_BRAKE: Reason.POWER_BRAKE,
    signals.CARD_SLOWDOWN: Reason.HW_SLOWDOWN,
    signals.CARD_CAPPED: Reason.POWER_CAP,
}
"""Signal -> the bits any of which make it 1. All but the power cap are faults."""

MEMORY_XIDS = {48: "double-bit ECC error", 63: "row remapping", 64: "row remapping failed", 92: "many single-bit ECC errors"} | {
    94: "contained memory error",
    95: "uncontained memory error",
}
LINK_XIDS = {74: "NVLink error"}
CARD_XIDS = {62: "internal microcontroller halt", 79: "the card fell off the bus", 119: "GSP timeout", 120: "GSP error"}
XIDS: Mapping[int, str] = MEMORY_XIDS | LINK_XIDS | CARD_XIDS
"""Codes that speak of the hardware. Others (13, 31, 43, 45 ...) are mostly a program's own errors, and blame no card."""

COMBINE: Mapping[str, str] = {
    signals.CARD_CLOCK: "min",
    signals.CARD_MEMORY_CLOCK: "min",
    signals.CARD_PCIE_WIDTH: "min",
    signals.CARD_CORRECTED: "sum",
    signals.CARD_UNCORRECTED: "sum",
    signals.CARD_REMAPPED: "sum",
    signals.CARD_LINK_ERRORS: "sum",
    signals.CARD_PCIE_REPLAYS: "sum",
    signals.CARD_POWER: "sum",
}
"""How a rank's value follows from those of its cards; "max" for the others: the worst one counts, as they step together."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU at one moment. `values` holds raw readings (counters cumulative) by canonical signal."""

    host: str
    index: int  # the driver's, on its host
    uuid: str = ""
    bus: str = ""  # PCI address, lower case; empty when not said
    pids: tuple[int, ...] = ()  # processes that compute on it
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """All cards that one page shows, in the order of host (as on the page) and index."""

    cards: tuple[Card, ...] = ()
    problems: tuple[Problem, ...] = ()


def of_reasons(bits: float) -> dict[str, float]:
    """The signals that a mask of clock reasons gives, 0 or 1 each; nothing for what is no mask."""
    if not isfinite(bits) or bits < 0 or bits != int(bits) or bits >= 2**63:
        return {}
    return {name: float(bool(int(bits) & reasons)) for name, reasons in BITS.items()}


def idle(bits: float | None, utilization: float | None) -> bool:
    """Whether the card is not at work, so that its clock says nothing: by the reasons' first bit, else by a utilization of 0."""
    if bits is not None and of_reasons(bits):
        return bool(int(bits) & Reason.IDLE)
    return utilization == 0.0


def of_xid(code: float) -> float | None:
    """The code if it speaks of the hardware, 0 if it does not or there is none; None for what is no code."""
    if not isfinite(code) or code < 0 or code != int(code):
        return None
    return code if int(code) in XIDS else 0.0


def bus_address(text: str) -> str:
    """A PCI address as /sys spells it (0000:1b:00.0): drivers write eight digits of domain, and capitals."""
    domain, colon, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}" if colon else ""
