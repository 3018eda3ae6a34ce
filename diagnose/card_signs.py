"""What a card itself says is wrong with it: signs, before anybody asks what they cost. Pure.

A sign is not a fault of the group: a throttle reason at full clocks, a corrected error, a retried packet cost nothing by themselves.
diagnose/card_blame.py holds them against the group's step time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from collector import promql, signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import freshness, lockstep, sums
from diagnose.model import Evidence
from diagnose.rules import Limits, Threshold

SHARE = Threshold(
    0.05,
    "of step time",
    "unexplained differences between healthy windows reach 0.031 (healthy_spread.py), and a card's own sign is needed beside",
)

THROTTLE = {
    "share": SHARE,
    "active": Threshold(
        0.25,
        "of the window",
        "an exporter looks every 30 s by default: one look in four of two minutes; a shorter time lengthens no mean step by 0.05",
    ),
    "clock": Threshold(
        0.93,
        "x the peers' SM clock",
        "boost clocks of sound cards step by 15 MHz of 1980 and differ by a few steps, 0.97 at least; 0.93 lengthens compute by 8 %",
    ),
}

MEMORY = {
    "share": SHARE,
    "corrected": Threshold(
        0.1,
        "errors per second",
        "six in a minute; a sound card corrects a few a day, 0.00005 per second, and one bad cell read in every step gives tens",
    ),
    "clock": Threshold(
        0.93, "x the peers' memory clock", "memory clocks of cards of one kind are equal: any state below the top one is 0.8"
    ),
    "hot": Threshold(
        95.0, "C", "nvidia-smi -q states 95 C as the most for the memory of H100 and H200 cards; above it the driver slows them"
    ),
}

LINK = {
    "share": SHARE,
    "errors": Threshold(
        0.1,
        "errors per second",
        "six in a minute, on and on; a sound NVLink counts 0 for days, and one that retrains at every retry loses milliseconds each time",
    ),
    "width": Threshold(0.9, "x the peers' lanes", "widths halve: a card trained at 8 lanes of 16 is 0.5"),
}

_THROTTLE, _MEMORY, _LINK = Limits(THROTTLE), Limits(MEMORY), Limits(LINK)

DOMINANT = 10.0
"""Times the peers' median rate from which errors are one card's own and not what all cards of a batch or all links of a switch show."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that one rank's card says. `dated`: it happened inside the window, and did not only stay on show since earlier."""

    row: int
    evidence: Evidence
    words: str  # for a summary: "is thermally throttled"
    dated: bool = True
    harmless: bool = False  # it is known to slow nothing: a throttle reason at the peers' clock

    @property
    def identity(self) -> tuple[int | None, str, float]:
        """What makes it the same sign in another window: the rank, the signal, and of an XID the code."""
        of = self.evidence
        return of.rank, of.signal, of.observed if of.signal == signals.CARD_XID else 0.0


@once_a_window
def throttle(window: Window) -> tuple[Sign, ...]:
    """Cards that run slower than their peers, with the reason where it is reported, and cards with a reason that slows nothing."""
    limit = _THROTTLE
    clock, usual = _clocks(window)
    below = clock < limit.clock * usual
    reasoned = np.any([window.mean(name) >= limit.active for name in _WORDS], axis=0)
    out: list[Sign] = []
    for row in np.flatnonzero(below | reasoned).tolist():
        rank, slow, reason = window.ranks[row], bool(below[row]), _reason(window, row, limit)
        capped = window.mean(signals.CARD_CAPPED)[row] >= limit.active
        name, share, why = reason or (signals.CARD_CLOCK, np.nan, "is at its power limit" if capped else "runs at a low clock")
        if slow:
            what = f"rank {rank}'s card runs at {clock[row] / 1e6:,.0f} MHz, its peers' at {usual[row] / 1e6:,.0f}"
            evidence = Evidence(
                signals.CARD_CLOCK,
                what,
                float(clock[row]),
                float(usual[row]),
                "Hz",
                rank,
                float(limit.clock * usual[row]),
                promql.CARD_CLOCK,
            )
            out.append(Sign(row, evidence, why))
        if reason is not None:
            what = f"rank {rank}'s card {why} for {share:.0%} of the window"
            evidence = Evidence(name, what, share, 0.0, "of the window", rank, limit.active, promql.CARD_REASONS)
            out.append(Sign(row, evidence, why, harmless=bool(clock[row] >= limit.clock * usual[row])))
    return tuple(out)


def _clocks(window: Window) -> tuple[FloatArray, FloatArray]:
    """(R,) SM clock of each rank's card, and of its peers'."""
    clock = window.mean(signals.CARD_CLOCK)
    return clock, lockstep.peers_median(clock)


_WORDS = {
    signals.CARD_THERMAL: "is slowed for heat",
    signals.CARD_BRAKE: "is slowed by its power supply",
    signals.CARD_SLOWDOWN: "is slowed by its hardware",
}


def _reason(window: Window, row: int, limit: Limits) -> tuple[str, float, str] | None:
    """The signal, share of time and words of the fault that slows a card most of the time; None without one. A power cap is none."""
    for name, words in _WORDS.items():
        share = window.mean(name)[row]
        if share >= limit.active:
            return name, float(share), words
    return None


@once_a_window
def memory(window: Window) -> tuple[Sign, ...]:
    """Cards whose memory fails, is slow, or is too hot, and cards with an XID of memory or of the card as a whole."""
    limit = _MEMORY
    out = [*_xids(window, link=False)]
    out += _rising(window, signals.CARD_UNCORRECTED, _once(window), "errors/s", "has uncorrected memory errors", promql.CARD_UNCORRECTED)
    out += _rising(window, signals.CARD_CORRECTED, limit.corrected, "errors/s", "corrects memory errors without end", promql.CARD_CORRECTED)
    out += _rising(window, signals.CARD_REMAPPED, _once(window), "rows/s", "replaces memory rows", promql.CARD_REMAPPED)
    failed = freshness.last(window.get(signals.CARD_REMAP_FAILED))
    heat, clock = window.mean(signals.CARD_MEMORY_TEMPERATURE), window.mean(signals.CARD_MEMORY_CLOCK)
    usual = lockstep.peers_median(clock)
    too_hot = {sign.row for sign in throttle(window) if not sign.harmless}  # heat slows the whole card then: gpu_throttled
    slow = clock < limit.clock * usual
    for row in np.flatnonzero((failed > 0) | slow | (heat >= limit.hot)).tolist():
        rank = window.ranks[row]
        if failed[row] > 0:
            what = f"rank {rank}'s card could not replace a bad memory row"
            evidence = Evidence(signals.CARD_REMAP_FAILED, what, 1.0, 0.0, "1", rank, 0.0, promql.CARD_REMAP_FAILED)
            out.append(Sign(row, evidence, "has no spare memory rows left", dated=False))
        if slow[row]:
            what = f"rank {rank}'s memory runs at {clock[row] / 1e6:,.0f} MHz, its peers' at {usual[row] / 1e6:,.0f}"
            least = float(limit.clock * usual[row])
            evidence = Evidence(
                signals.CARD_MEMORY_CLOCK, what, float(clock[row]), float(usual[row]), "Hz", rank, least, promql.CARD_MEMORY_CLOCK
            )
            out.append(Sign(row, evidence, "has slow memory"))
        if heat[row] >= limit.hot and row not in too_hot:
            what = f"rank {rank}'s memory is at {heat[row]:.0f} C"
            evidence = Evidence(
                signals.CARD_MEMORY_TEMPERATURE, what, float(heat[row]), None, "C", rank, limit.hot, promql.CARD_MEMORY_TEMPERATURE
            )
            out.append(Sign(row, evidence, "has memory that is too hot"))
    return tuple(out)


@once_a_window
def link(window: Window) -> tuple[Sign, ...]:
    """Cards whose NVLinks or PCIe lanes count errors that their peers' do not, or that have fewer lanes."""
    limit = _LINK
    out = [*_xids(window, link=True)]
    out += _rising(window, signals.CARD_LINK_ERRORS, limit.errors, "errors/s", "has NVLink errors without end", promql.CARD_LINK_ERRORS)
    out += _rising(window, signals.CARD_PCIE_REPLAYS, limit.errors, "replays/s", "repeats PCIe packets", promql.CARD_PCIE_REPLAYS)
    width = window.mean(signals.CARD_PCIE_WIDTH)
    usual = lockstep.peers_median(width)
    for row in np.flatnonzero(width < limit.width * usual).tolist():
        rank = window.ranks[row]
        what = f"rank {rank}'s card has {width[row]:.0f} PCIe lanes, its peers have {usual[row]:.0f}"
        evidence = Evidence(
            signals.CARD_PCIE_WIDTH, what, float(width[row]), float(usual[row]), "lanes", rank, None, promql.CARD_PCIE_WIDTH
        )
        out.append(Sign(row, evidence, "lacks PCIe lanes", dated=False))
    return tuple(out)


def _once(window: Window) -> float:
    """The rate of one event in the window, halved: a count between two looks may be cut by the window's edge."""
    length = window.end - window.start
    return 0.5 / length if length > 0 else np.inf


def _rising(window: Window, signal: str, least: float, unit: str, words: str, query: str) -> Iterator[Sign]:
    if not window.has(signal):
        return
    rate = window.mean(signal)
    if not (rate >= least).any():
        return
    usual = sums.zeroed(lockstep.peers_median(rate))
    for row in np.flatnonzero((rate >= least) & (rate > DOMINANT * usual)).tolist():
        rank = window.ranks[row]
        what = f"rank {rank}'s card counts {rate[row]:.3g} {unit}, its peers {usual[row]:.3g}"
        yield Sign(row, Evidence(signal, what, float(rate[row]), float(usual[row]), unit, rank, least, query), words)


_LINK_CODES = MappingProxyType({74: "NVLink error"})
_CODES = MappingProxyType(
    {48: "double-bit memory error", 62: "microcontroller halt", 63: "memory row replaced", 64: "memory row not replaceable"}
    | {79: "card off the bus", 92: "many corrected memory errors", 94: "contained memory error", 95: "uncontained memory error"}
    | {119: "GSP timeout", 120: "GSP error"}
)
"""What an XID means, in NVIDIA's catalogue; the collector passes on no others than these and _LINK_CODES'."""


def _xids(window: Window, *, link: bool) -> Iterator[Sign]:
    """Cards with an XID. It stays on show after its cause has gone, so it is dated only when it changed inside the window."""
    if not window.has(signals.CARD_XID):
        return
    table = window.get(signals.CARD_XID)
    codes = freshness.last(table)
    for row in np.flatnonzero(codes > 0).tolist():
        if (codes[row] in _LINK_CODES) is not link:
            continue
        rank = window.ranks[row]
        seen = table[row][np.isfinite(table[row])]
        meaning = (_LINK_CODES if link else _CODES).get(int(codes[row]), "hardware error")
        evidence = Evidence(
            signals.CARD_XID,
            f"rank {rank}'s driver reports XID {codes[row]:.0f}, {meaning}",
            float(codes[row]),
            0.0,
            "XID",
            rank,
            None,
            promql.CARD_XID,
        )
        yield Sign(row, evidence, f"has XID {codes[row]:.0f} ({meaning})", dated=bool((seen != codes[row]).any()))


@dataclass(frozen=True, slots=True)
class Kind:
    """One way for a card to be at fault."""

    rule: str
    find: Callable[[Window], tuple[Sign, ...]]


KINDS = (Kind("gpu_throttled", throttle), Kind("gpu_degraded", memory), Kind("link_degraded", link))
