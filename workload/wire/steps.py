"""What goes between a rank and its card, or between the cards themselves."""

from __future__ import annotations

import msgspec


class Launch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A rank has put step `step` on its card at `at` (monotonic seconds). `graph`: the step replays a captured decode graph."""

    step: int
    at: float
    decode_tokens: int
    decode_pairs: int
    prefill_tokens: int
    prefill_pairs: int
    graph: bool


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Step `step` has ended. `span` is first start to last end on this rank's card, seconds, waits for other cards included.

    `rows[l][r]` are the token copies that layer l of the sampled layers sent to the experts of rank r.
    """

    step: int
    span: float
    rows: list[list[int]]


class Meet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card has arrived at a collective; `first`: at the first one of a step in which it has `tokens` of its own."""

    tokens: int
    first: bool


class Met(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All cards have arrived: what goes to whose experts, and how much longer than it needs to the step must last (1 = no longer)."""

    rows: list[list[int]]
    stretch: float
