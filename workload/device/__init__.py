"""What stands in for the cards. A rank launches steps and waits for their ends; all cards meet at every layer's collectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Work:
    """What one rank's card has to do in a step. All zero: an idle batch, which still takes part in every collective.

    `graph`: the step replays a captured decode graph. It is the same on all ranks.
    """

    decode_tokens: int = 0
    decode_pairs: int = 0
    prefill_tokens: int = 0
    prefill_pairs: int = 0
    graph: bool = True

    @property
    def tokens(self) -> int:
        return self.decode_tokens + self.prefill_tokens


@dataclass(frozen=True, slots=True)
class Ended:
    """A step that has ended: this card's first start to last end in seconds, and the experts' rows per sampled layer and rank."""

    span: float
    rows: list[list[int]]


class Device(Protocol):
    """One rank's card. At most two steps are launched and not waited for."""

    def launch(self, step: int, work: Work) -> None:
        """Puts a step on the card and returns at once."""

    def wait(self) -> Ended:
        """Waits for the end of the oldest launched step."""
