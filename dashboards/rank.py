"""One rank beside its peers: is it late by itself, or does it have more to do?"""

from __future__ import annotations

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
from dashboards.recording import LATENESS, Derived

_UNITS = {"s": "s", "Hz": "hertz", "C": "celsius"}
"""A signal's unit as Grafana calls it. A counter of seconds grows by seconds per second, a share."""

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
                    _beside("Wait per step", WAIT, "Bad: this rank waits far less than its peers do: they wait for it."),
                    _beside("Lateness", LATENESS, "Bad: above the peers for minutes."),
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
                    _own("Link errors", signals.CARD_LINK_ERRORS, "Bad: any that go on: collectives retry on this card's links."),
                    _own("Ready but not run", signals.RUN_QUEUE_DELAY, "Bad: above the peers': another process has its CPU."),
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
    return lines(
        title,
        f"{of.about}. {bad}",
        of.unit,
        Query(f'{of.record}{{{_GROUP},rank="$rank"}}', "rank $rank", SUBJECT),
        Query(f'quantile(0.5, {of.record}{{{_GROUP},rank!="$rank"}})', "median of its peers", BESIDE),
    )


def _snapshot() -> Any:
    return _own(
        "Age of its load snapshot",
        signals.SNAPSHOT_AGE,
        "From slowrank's page, SGLang only. Bad: it grows without end: the rank, or its whole group, has stopped.",
    )


def _own(title: str, signal: str, bad: str) -> Any:
    """A signal that only slowrank's page has, as its rate if it counts."""
    family = exported.of_signals()[signal]
    counts = family.kind is exported.Kind.COUNTER

    def of(sign: str) -> str:
        series = f'{family.name}{{engine="$engine",rank{sign}"$rank"}}'
        return f"max by (rank) (rate({series}[$__rate_interval]))" if counts else f"max by (rank) ({series})"

    return lines(
        title,
        f"{family.help[0].upper()}{family.help[1:]}{', per second' if counts else ''}. {bad}",
        ("percentunit" if signals.CATALOGUE[signal].unit == "s" else "ops") if counts else _UNITS[signals.CATALOGUE[signal].unit],
        Query(f"max({of('=')})", "rank $rank", SUBJECT),
        Query(f"quantile(0.5, {of('!=')})", "median of its peers", BESIDE),
    )
