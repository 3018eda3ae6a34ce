"""Whether a fault did anything: a run held against its twin, the same engine and requests without the fault. No diagnosis is asked.

What an engine's users and its steps can feel: how long a step lasts, how many the group takes, how many tokens it computes, how long a
first token takes, how many requests are there (by Little's law how long they stay), whether any were pushed out, and who waits how long.
Virtual time plays the twin's requests at the same moments, so what the fault does not touch is the same to the last digit; but a fault
that does a little changes which rank gets what next, and chance then moves these figures by more than the fault: such a run counts as one
with an effect, which is the strict side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from collector import signals
from collector.model import Window
from diagnose import lockstep, sums

MARGIN = 0.02
"""Of the twin's figures, and of its step time for waits. Below the 0.03 from which a report names a second cause, and the 0.05 from which
rules blame one: who says `healthy` of such a run tells a person all that is worth doing."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is compared; None where nothing of the kind was seen."""

    step: float | None  # s per decode step
    rate: float | None  # steps per second of the group
    tokens: float  # computed per second
    first: float | None  # s until a first token
    held: float  # requests running or waiting
    retracted: float  # requests per second
    waits: tuple[float, ...]  # s per step of each rank; empty if unknown


def facts(window: Window) -> Facts:
    """The figures of a window."""
    waits, firsts = lockstep.waits(window), sums.total(window.mean(signals.FIRST_TOKENS))
    return Facts(
        step=lockstep.cadence(window),
        rate=lockstep.group_rate(window),
        tokens=sums.total(window.mean(signals.ATTENTION_TOKENS)),
        first=sums.total(window.mean(signals.FIRST_TOKEN_TIME)) / firsts if firsts > 0 else None,
        held=sums.total(window.mean(signals.RUNNING)) + sums.total(window.mean(signals.WAITING)),
        retracted=sums.total(window.mean(signals.RETRACTED)),
        waits=() if waits is None else tuple(waits.per_step.tolist()),
    )


def moved(run: Facts, twin: Facts) -> float:
    """The largest share by which a figure of `run` differs from the twin's; infinite where only one of the two has it."""
    pairs = [(run.step, twin.step), (run.rate, twin.rate), (run.tokens, twin.tokens), (run.first, twin.first)]
    pairs += [(run.held, twin.held), (run.retracted, twin.retracted)]
    return max(*(_apart(a, b) for a, b in pairs), _waits(run, twin))


def _apart(a: float | None, b: float | None) -> float:
    if a is None or b is None:
        return 0.0 if a is b else math.inf
    if a == b:
        return 0.0
    return abs(a - b) / b if b > 0 else math.inf


def _waits(run: Facts, twin: Facts) -> float:
    if len(run.waits) != len(twin.waits):
        return math.inf
    apart = [abs(a - b) for a, b in zip(run.waits, twin.waits, strict=True) if math.isfinite(a + b)]
    return max(apart) / twin.step if apart and twin.step else 0.0
