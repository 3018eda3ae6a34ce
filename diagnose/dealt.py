"""What both request skews are told of an uneven deal. Frozen, no IO."""

from __future__ import annotations

from dataclasses import dataclass

from collector.model import FloatArray
from diagnose.model import Share


@dataclass(frozen=True, slots=True)
class Deal:
    """An uneven deal that costs time: the leading ranks, and how far every rank's counts and lengths stand above its peers'."""

    rows: tuple[int, ...]
    share: Share
    counts: FloatArray  # (R,) running requests over the peers' median
    lengths: FloatArray  # (R,) attention pairs per request over the peers' median
    weakened_by: tuple[str, ...]
    would_tell: str = ""  # what tells load from the rank itself, where the window cannot

    @property
    def longer(self) -> tuple[int, ...]:
        """Rows that stand out by context length rather than by number of requests."""
        return tuple(row for row in self.rows if self.lengths[row] > self.counts[row])

    @property
    def fuller(self) -> tuple[int, ...]:
        """The other rows: those that stand out by number of requests."""
        return tuple(row for row in self.rows if row not in self.longer)

    def part(self, rows: tuple[int, ...]) -> Share:
        """What levelling some of the rows gives back of what levelling all does, by number: one alone leaves the others leading."""
        of = len(rows) / len(self.rows)
        return Share(self.share.mid * of, self.share.low * of, self.share.high)
