"""One rank beside its peers: is it late by itself, or does it have more to do?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collector import exported, signals
from dashboards.look import BESIDE, SUBJECT
from dashboards.page import ENGINE, RANK, SOURCE, Row, page
from dashboards.panels import Query, lines
from dashboards.quantities import (
    EAGER,
    HIT_RATIO,
    KV_USAGE,
    PAIRS,
    PREFILL,
    RETRACTED,
    RUNNING,
    SCHEDULER_CPU,
    STEP_TIME,
    TOKENS,
    WAIT,
    WAITING,
    Quantity,
)
from dashboards.recording import LATENESS, Derived, about

_UNITS = {"s": "s", "Hz": "hertz", "C": "celsius", "W": "watt", "ratio": "percentunit"}
"""A signal's unit as Grafana calls it."""

_GROUP = 'engine="$engine",source="$source"'


def dashboard() -> dict[str, Any]:
    """The page."""
    return page(
        "rank",
        "rank",
        "One rank against the median of its peers. More work and more lateness together is load; lateness without more work is the rank"
        " itself.",
        [SOURCE, ENGINE, RANK],
        [
            Row(
                "Is it late?",
                8,
                [
                    _of_step("Wait", WAIT, "Bad: this rank waits far less than its peers do: they wait for it."),
                    _of_step("Lateness", LATENESS, "Bad: above the peers for minutes."),
                    _beside(
                        "Step time",
                        STEP_TIME,
                        "Equal to the peers' where the group steps together, and then no evidence against this rank.",
                    ),
                ],
            ),
            Row(
                "Has it more to do?",
                8,
                [
                    _beside("Attention pairs per step", PAIRS, "Bad: a multiple of the peers': load, not this rank's fault."),
                    _beside("Tokens per second", TOKENS, "Bad: more than the peers: load. Far less, with requests waiting: it is held up."),
                    _beside("Running requests", RUNNING, "Bad: more than the peers for minutes: routing."),
                    _beside("Waiting requests", WAITING, "Bad: a queue here alone."),
                ],
            ),
            Row(
                "Is its process run?",
                8,
                [
                    _beside(
                        "Scheduler CPU",
                        SCHEDULER_CPU,
                        "Late with more CPU than the peers: more work. Late with the same: it is not being run.",
                    ),
                    _beside("Without CUDA graph", EAGER, "Bad: above the peers: steps of the whole group take longer."),
                    _snapshot(),
                ],
            ),
            Row(
                "Its card and its host",
                8,
                [
                    _own(
                        "SM clock",
                        signals.CARD_CLOCK,
                        "Bad: below the peers' at the same load: a throttled card. This row needs docs/hardware.md.",
                    ),
                    _own("Temperature", signals.CARD_TEMPERATURE, "Bad: far above the peers', with a lower clock."),
                    _own("Slowed for heat", signals.CARD_THERMAL, "Bad: any: its cooling, its air, or the fan curve of its node."),
                    _own("Power", signals.CARD_POWER, "Bad: below the peers' at the same load: it is held back; see the clock."),
                ],
            ),
            Row(
                "Prompts and cache",
                8,
                [
                    _beside("Prompt tokens computed per second", PREFILL, "Bad: bursts here alone: all decode at its pace."),
                    _beside("Prefix cache hits", HIT_RATIO, "Bad: below the peers: its prompts lost their cache."),
                    _beside("KV pool in use", KV_USAGE, "Bad: near 100 % while peers have room."),
                    _beside("Retractions per second", RETRACTED, "Bad: any that last."),
                ],
            ),
        ],
    )


def _beside(title: str, of: Quantity | Derived, bad: str) -> Any:
    return _both(title, f"{about(of)} {bad}", of.unit, lambda who: f"{of.record}{{{_GROUP},{who}}}")


def _of_step(title: str, of: Quantity | Derived, bad: str) -> Any:
    """A time as a share of the step: 200 us of 40 ms are nothing, however far they lie apart."""

    def share(who: str) -> str:
        return f"{of.record}{{{_GROUP},{who}}} / {STEP_TIME.record}{{{_GROUP},{who}}}"

    return _both(title, f"{about(of)} As a share of the step. {bad}", "percentunit", share)


def _both(title: str, said: str, unit: str, of: Callable[[str], str]) -> Any:
    """This rank beside its peers. `of`: the expression for a matcher of ranks."""
    mine, theirs = of('rank="$rank"'), of('rank!="$rank"')
    return lines(title, said, unit, Query(mine, "rank $rank", SUBJECT), Query(f"quantile(0.5, {theirs})", "median of its peers", BESIDE))


def _snapshot() -> Any:
    return _own(
        "Age of its load snapshot",
        signals.SNAPSHOT_AGE,
        "From slowrank's page, SGLang only. Bad: it grows without end: the rank, or its whole group, has stopped.",
    )


def _own(title: str, signal: str, bad: str) -> Any:
    """A level that only slowrank's page has."""
    family = exported.of_signals()[signal]
    return _both(
        title,
        f"{family.help[0].upper()}{family.help[1:]}. {bad}",
        _UNITS[signals.CATALOGUE[signal].unit],
        lambda who: f'max by (rank) ({family.name}{{engine="$engine",{who}}})',
    )
