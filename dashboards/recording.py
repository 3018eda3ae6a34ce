"""Recording rules: the table of quantities per rank, and what follows from it per engine. Pure; `dashboards.rules` writes them.

The label `source` says which page a series came from, so that an engine that is scraped twice is not counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector import exported, signals
from dashboards.quantities import PAIRS, QUANTITIES, STEP_TIME, WAIT, Quantity
from dashboards.series import WINDOW, Source, per_rank, rate

_GROUP = "by (engine, source)"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule. `source` is its static label; None: the expression has the label already."""

    record: str
    expr: str
    about: str
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Derived:
    """A series that follows from recorded ones. `unit` is Grafana's."""

    record: str
    unit: str
    about: str
    expr: str


LATENESS = Derived(
    "rank:slowrank_lateness_seconds:rate1m",
    "s",
    "How late the rank is at the host exchanges of one step: who waits least is late",
    f"max {_GROUP} ({WAIT.record}) - on (engine, source) group_right () {WAIT.record}",
)
HOST_LOSS = Derived(
    "engine:slowrank_host_lost_time:ratio",
    "percentunit",
    "Share of step time that ranks spend waiting for the latest host: mean minus least wait",
    f"(avg {_GROUP} ({WAIT.record}) - min {_GROUP} ({WAIT.record})) / avg {_GROUP} ({STEP_TIME.record})",
)
SKEW = Derived(
    "engine:slowrank_pairs_skew:ratio",
    "short",
    "Attention work of the busiest rank, in means; 1 is level, and 1.85 was measured without a fault",
    f"max {_GROUP} ({PAIRS.record}) / (avg {_GROUP} ({PAIRS.record}) > 0)",
)
RANKS = Derived("engine:slowrank_ranks:count", "short", "Ranks with a step time", f"count {_GROUP} ({STEP_TIME.record})")


def about(of: Quantity | Derived) -> str:
    """What a panel of it says it is, and where there is none of it."""
    of_vllm = isinstance(of, Quantity) and Source.VLLM in of.of  # what is derived per rank follows from waits
    return of.about + ("." if of_vllm else ". vLLM's own page does not say it.")


DERIVED = (LATENESS, HOST_LOSS, SKEW, RANKS)
"""In an order in which each follows from what is recorded before it."""

BALANCEDNESS = "engine:slowrank_balancedness:rate1m"
_OUR_SUM, _OUR_COUNT = (exported.of_signals()[name].name for name in (signals.BALANCEDNESS_SUM, signals.BALANCEDNESS_COUNT))
_THEIR_SUM, _THEIR_COUNT = (rate(Source.SGLANG, f"eplb_balancedness_{part}") for part in ("sum", "count"))
_BALANCEDNESS = {
    Source.SGLANG: f"max by (engine) ({per_rank(Source.SGLANG, f'{_THEIR_SUM} / ({_THEIR_COUNT} > 0)')})",
    Source.SLOWRANK: f"max by (engine) (rate({_OUR_SUM}[{WINDOW}])) / (max by (engine) (rate({_OUR_COUNT}[{WINDOW}])) > 0)",
}


def recordings() -> Iterator[Recording]:
    """All of them, in the order of evaluation."""
    for quantity in QUANTITIES.values():
        for source, expr in quantity.of.items():
            yield Recording(quantity.record, expr, quantity.about, source)
    for source, expr in _BALANCEDNESS.items():
        yield Recording(BALANCEDNESS, expr, "Mean over maximum expert load of a card; 1 is level", source)
    for derived in DERIVED:
        yield Recording(derived.record, derived.expr, derived.about)
