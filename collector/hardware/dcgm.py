"""A page of NVIDIA's dcgm-exporter into the cards that it shows. Pure.

Names are DCGM's field names, which the exporter uses as metric names. The default counters file has clocks, temperatures, power, PCIe
retries, XID and remapped rows; clock reasons, ECC and NVLink errors must be added. Read here with every spelling that versions use:
CLOCK_THROTTLE_REASONS became CLOCKS_EVENT_REASONS in DCGM 3.3, NVLink 5 cards have COUNT_* fields in place of *_ERROR_COUNT_TOTAL.
POWER_VIOLATION is not read: power capping is no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from collector import signals
from collector.engines.limits import few
from collector.exposition import Parser, Sample
from collector.hardware import cards
from collector.hardware.cards import Card, Look
from collector.model import Page, Problem

_PREFIX = "DCGM_FI_DEV_"
_REASONS = ("CLOCKS_EVENT_REASONS", "CLOCK_THROTTLE_REASONS")
_XID = "XID_ERRORS"
_UTILIZATION = "GPU_UTIL"


@dataclass(frozen=True, slots=True)
class Row:
    """One signal and the fields that it is the sum of, in `unit` of the signal."""

    signal: str
    fields: tuple[str, ...]
    unit: float = 1.0


ROWS: tuple[Row, ...] = (
    Row(signals.CARD_CLOCK, ("SM_CLOCK",), cards.MHZ),
    Row(signals.CARD_MEMORY_CLOCK, ("MEM_CLOCK",), cards.MHZ),
    Row(signals.CARD_TEMPERATURE, ("GPU_TEMP",)),
    Row(signals.CARD_MEMORY_TEMPERATURE, ("MEMORY_TEMP",)),
    Row(signals.CARD_POWER, ("POWER_USAGE",)),
    Row(signals.CARD_CORRECTED, ("ECC_SBE_VOL_TOTAL",)),
    Row(signals.CARD_UNCORRECTED, ("ECC_DBE_VOL_TOTAL",)),
    Row(signals.CARD_REMAPPED, ("UNCORRECTABLE_REMAPPED_ROWS",)),
    Row(signals.CARD_REMAP_FAILED, ("ROW_REMAP_FAILURE",)),
    Row(
        signals.CARD_LINK_ERRORS,
        (
            "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
            "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
            "NVLINK_COUNT_RX_ERRORS",
            "NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
            "NVLINK_COUNT_LINK_RECOVERY_EVENTS",
        ),
    ),
    Row(signals.CARD_PCIE_REPLAYS, ("PCIE_REPLAY_COUNTER",)),
    Row(signals.CARD_PCIE_WIDTH, ("PCIE_LINK_WIDTH",)),
)

FIELDS = frozenset(name for row in ROWS for name in row.fields) | {*_REASONS, _XID, _UTILIZATION}

BLANKS = 2.0**31 - 16
"""DCGM's blanks (not supported, not found, not permitted) are 0x7ffffff0 and up, in 64 bits 0x7ffffffffffffff0 and up. An exporter leaves
them out; forks have printed them. No field that is read here comes near, but for counters that then stand still at such a value."""

_THEN = "give the node's own dcgm-exporter page (port 9400, /metrics)"


def parser() -> Parser:
    """A parser of the fields that are read here."""
    return Parser(_PREFIX + name for name in sorted(FIELDS))


@dataclass(slots=True)
class _Seen:
    uuid: str = ""
    bus: str = ""
    fields: dict[str, float] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)


def read(page: Page, parsing: Parser) -> Look:
    """The cards of one page. Raises SourceError for a body that is no metrics page."""
    exposition = parsing.parse(page.body)
    problems = [Problem(page.node, what) for what in exposition.problems]
    found = _cards(exposition.samples, page.node, problems)
    if not found:
        problems.append(Problem(page.node, "no DCGM field of any card is on this page", _THEN))
    looked = [_card(host, index, seen) for (host, index), seen in found.items()]
    for (host, index), seen in found.items():
        if seen.twice:
            what = f"GPU {index} of {host or 'the node'} is there more than once with different values of {', '.join(sorted(seen.twice))}"
            problems.append(Problem(page.node, f"{what}; they were not read", _THEN))
    order = list(dict.fromkeys(card.host for card in looked))
    looked.sort(key=lambda card: (order.index(card.host), card.index))
    return Look(tuple(looked), few(problems))


def _cards(samples: Iterable[Sample], where: str, problems: list[Problem]) -> dict[tuple[str, int], _Seen]:
    found: dict[tuple[str, int], _Seen] = {}
    sliced = strange = 0
    for name, labels, value in samples:
        fieldname = name.removeprefix(_PREFIX).removesuffix("_total")
        if fieldname not in FIELDS or not isfinite(value) or value < 0 or value >= BLANKS:
            continue
        if labels.get("GPU_I_ID"):
            sliced += 1
            continue
        index = _index(labels)
        if index is None:
            strange += 1
            continue
        key = (labels.get("Hostname", ""), index)
        if key not in found and len(found) >= cards.MAX_CARDS:
            strange += 1
            continue
        seen = found.setdefault(key, _Seen(labels.get("UUID", ""), cards.bus_address(labels.get("pci_bus_id", ""))))
        # with pod labels a card that two pods share is there twice, equal in everything but the pod
        if seen.fields.setdefault(fieldname, value) != value:
            seen.twice.add(fieldname)
    if sliced:
        problems.append(Problem(where, f"{sliced} values of MIG slices; a slice's values say little of the card, they were not read"))
    if strange:
        problems.append(Problem(where, f"{strange} values without a usable gpu label, or beyond {cards.MAX_CARDS} cards, were skipped"))
    return found


def _index(labels: Mapping[str, str]) -> int | None:
    text = labels.get("gpu", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def _card(host: str, index: int, seen: _Seen) -> Card:
    known = {name: value for name, value in seen.fields.items() if name not in seen.twice}
    reasons = next((known[name] for name in _REASONS if name in known), None)
    values: dict[str, float] = {}
    for row in ROWS:
        parts = [known[name] for name in row.fields if name in known]
        if parts:
            values[row.signal] = sum(parts) * row.unit
    if reasons is not None:
        values |= cards.of_reasons(reasons)
    if _XID in known and (code := cards.of_xid(known[_XID])) is not None:
        values[signals.CARD_XID] = code
    if cards.idle(reasons, known.get(_UTILIZATION)):
        values.pop(signals.CARD_CLOCK, None)
    return Card(host, index, seen.uuid, seen.bus, values=values)
