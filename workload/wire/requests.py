"""What goes between the front end and the ranks: requests, and what came of them."""

from __future__ import annotations

import msgspec

from workload.prefix import Segment


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request for a rank: tokens of prompt, how many of them the prefix cache holds, tokens to generate.

    `prefix` names what the prompt begins with, `keeps` what follows: then the rank's own cache tells what it holds.
    """

    rid: int
    prompt: int
    cached: int
    output: int
    prefix: tuple[Segment, ...] = ()
    keeps: str = ""


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Forget these requests."""

    rids: list[int]


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a rank has produced since it last told: requests with their first token, finished ones, and (gap s, tokens) pairs.

    `failed` ones end with an error.
    """

    first: list[int]
    finished: list[int]
    gaps: list[tuple[float, int]]
    failed: list[int] = []
