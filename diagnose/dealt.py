"""What both request skews are told of an uneven deal. Frozen, no IO."""

from __future__ import annotations

from dataclasses import dataclass

from diagnose.model import Evidence, Share


@dataclass(frozen=True, slots=True)
class Deal:
    """An uneven deal that costs time: the leading ranks, and how far their counts and lengths stand above their peers'."""

    rows: tuple[int, ...]
    share: Share
    count_ratio: float  # running requests over the peers' median
    length_ratio: float  # attention pairs per request over the peers' median
    evidence: tuple[Evidence, ...]
    weakened_by: tuple[str, ...]

    @property
    def by_length(self) -> bool:
        """Whether longer contexts, rather than more requests, make most of the difference."""
        return self.length_ratio > self.count_ratio
