"""One engine: all ranks by time. A cause shows as a row that differs from the others, and for how long."""

from __future__ import annotations

from typing import Any

from dashboards.largest import largest
from dashboards.look import BESIDE, SUBJECT, THIRD, WORTH
from dashboards.page import ENGINE, SOURCE, Row, page
from dashboards.panels import Link, Query, Steps, heat, lines
from dashboards.quantities import EAGER, HIT_RATIO, KV_USAGE, PAIRS, PREFILL, RETRACTED, RUNNING, STEP_TIME, TOKENS, WAIT, WAITING, Quantity
from dashboards.recording import BALANCEDNESS, HOST_LOSS, LATENESS, SKEW, Derived, about

HERE = 'engine="$engine",source="$source"'
SKEWED = 4.0
"""Means where the scale of attention work ends: 1 and the 1.85 of a level group lie in its lower half."""

TOP = 4
"""Lines beside a heat map: as many as a legend below them leaves room for."""

TO_RANK = Link(
    "This rank beside its peers",
    "/d/slowrank-rank?var-source=${source}&var-engine=${engine:percentencode}&var-rank=${__field.labels.rank}&${__url_time_range}",
)


def dashboard() -> dict[str, Any]:
    """The page."""
    return page(
        "engine",
        "engine",
        "All ranks of one engine, a row each. Look for a row that differs and stays: low in the wait is a late host, high in the"
        " pairs is load. Beside the heat maps the ranks that stand out; a click on a line opens that rank's page.",
        [SOURCE, ENGINE],
        [
            Row("What is lost", 7, [_step_time(), _host_loss(), _level()]),
            Row(
                "Late",
                11,
                [
                    _of_step("Wait", WAIT, "Bad: one low row among high ones. Who waits least is late, and all others wait for it."),
                    _of_step("Lateness", LATENESS, "Bad: one high row that stays. High rows that take turns are load or chance."),
                    _top("The latest ranks", LATENESS, "Bad: one line that leaves the others and stays above them."),
                ],
            ),
            Row(
                "Busy",
                11,
                [
                    _pairs(),
                    _ranks(
                        "Tokens per second",
                        TOKENS,
                        "Bad: one high row while pairs are level, or a row that goes low while it has requests.",
                    ),
                    _top("The busiest ranks", PAIRS, "Bad: one line at a multiple of the others: it sets the pace of all."),
                ],
            ),
            Row(
                "Requests and cache",
                11,
                [
                    _ranks("Running requests", RUNNING, "Bad: one high row. Level counts say nothing of context lengths: see pairs."),
                    _ranks("Waiting requests", WAITING, "Bad: a queue on one rank while others have none."),
                    _ranks("KV pool in use", KV_USAGE, "Bad: a row at 100 % beside rows with room: it will retract requests.", 1.0),
                ],
            ),
            Row(
                "Prompts",
                11,
                [
                    _ranks("Prompt tokens computed per second", PREFILL, "Bad: one high row: the others decode at its pace meanwhile."),
                    _ranks("Prefix cache hits", HIT_RATIO, "Bad: one low row: it computes prompts that its peers find cached.", 1.0),
                    _ranks("Retractions per second", RETRACTED, "Bad: any that last: requests are pushed out and computed again."),
                ],
            ),
        ],
    )


def _ranks(title: str, of: Quantity | Derived, bad: str, top: float | None = None) -> Any:
    return heat(title, f"{about(of)} {bad}", of.unit, Query(f"{of.record}{{{HERE}}}", "{{rank}}"), top)


def _of_step(title: str, of: Quantity | Derived, bad: str) -> Any:
    """A time as a share of the step, so that one scale serves all models."""
    said = f"{about(of)} As a share of the step; the scale ends at {WORTH:.0%}. {bad}"
    return heat(title, said, "percentunit", Query(f"{of.record}{{{HERE}}} / {STEP_TIME.record}{{{HERE}}}", "{{rank}}"), WORTH)


def _pairs() -> Any:
    series = f"{PAIRS.record}{{{HERE}}}"
    return heat(
        "Attention work",
        f"{about(PAIRS)} In means of the ranks: 1 is level and 1.85 was measured without a fault. The scale ends at {SKEWED:.0f}. Bad: one"
        " high row: long contexts are on one rank, and all step at its pace.",
        "short",
        Query(f"{series} / on (engine, source) group_left () (avg by (engine, source) ({series}) > 0)", "{{rank}}"),
        SKEWED,
    )


def _top(title: str, of: Quantity | Derived, bad: str) -> Any:
    """A row of 512 is less than a pixel high: what stands out is drawn by itself."""
    series = f"{of.record}{{{HERE}}}"
    return lines(
        title,
        f"{about(of)} The {TOP} ranks with most of it over the whole time that is shown. {bad}",
        of.unit,
        Query(largest(TOP, series, "rank"), "rank {{rank}}"),
        link=TO_RANK,
    )


def _step_time() -> Any:
    series = f"{STEP_TIME.record}{{{HERE}}}"
    return lines(
        "Step time",
        "Fastest, median and slowest rank. One line where the group steps together: then no rank can be told by it. Bad: a rise at the"
        " same load;"
        " where ranks step for themselves, a slowest one that leaves the median.",
        "s",
        Query(f"min({series})", "fastest", BESIDE),
        Query(f"quantile(0.5, {series})", "median", THIRD),
        Query(f"max({series})", "slowest", SUBJECT),
    )


def _host_loss() -> Any:
    return lines(
        "Waiting for the latest host",
        f"{about(HOST_LOSS)} Cards may compute meanwhile, so that this is the most that can be lost to it; what is, the diagnosis says."
        " Bad: a step up that stays; lateness says whose.",
        "percentunit",
        Query(f"{HOST_LOSS.record}{{{HERE}}}", "of a step", SUBJECT),
        steps=Steps(0.05, None),
    )


def _level() -> Any:
    return lines(
        "Is the work level?",
        "Attention work of the busiest rank in means (1 is level, 1.85 was seen without a fault), and how level the experts are (1 is"
        " level, less"
        " is a hot expert). Share of decode passes without a CUDA graph on the worst rank. Bad: experts that fall while attention stays"
        " level.",
        "short",
        Query(f"{SKEW.record}{{{HERE}}}", "attention: max / mean", SUBJECT),
        Query(f"{BALANCEDNESS}{{{HERE}}}", "experts: mean / max", BESIDE),
        Query(f"max({EAGER.record}{{{HERE}}})", "without CUDA graph, worst rank", THIRD),
    )
