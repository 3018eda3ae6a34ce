"""Memory bandwidth of accelerator cards, bytes per second: the absolute reference for what an attention pair must cost.

From the vendors' data sheets. The name is matched as a substring of what the engine reports, longest first.
"""

from __future__ import annotations

BANDWIDTH: dict[str, float] = {
    "A100": 2.04e12,
    "A800": 2.04e12,
    "B200": 8.0e12,
    "B300": 8.0e12,
    "GB200": 8.0e12,
    "GB300": 8.0e12,
    "H100": 3.35e12,
    "H100 PCIe": 2.0e12,
    "H20": 4.0e12,
    "H20-3e": 4.8e12,
    "H200": 4.8e12,
    "H800": 3.35e12,
    "L20": 0.864e12,
    "L40S": 0.864e12,
    "MI300X": 5.3e12,
    "MI325X": 6.0e12,
    "MI355X": 8.0e12,
    "RTX PRO 6000": 1.79e12,
}


def bandwidth(accelerator: str | None) -> float | None:
    """Bytes per second of the card's memory, or None for a card that the table does not know."""
    known = [name for name in BANDWIDTH if accelerator and name.lower() in accelerator.lower()]
    return BANDWIDTH[max(known, key=len)] if known else None
