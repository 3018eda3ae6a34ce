"""One engine's verdicts through time: which cause, what it costs, how sure. For whoever decides what is repaired first."""

from __future__ import annotations

from typing import Any

from collector import exported
from dashboards.look import SUBJECT
from dashboards.page import JUDGED, Row, page
from dashboards.panels import Link, Query, Steps, classes, column, heat, lines, number, table
from dashboards.verdicts import class_numbers, lost_by_cause, lost_time

HERE = 'engine="$engine"'


def dashboard() -> dict[str, Any]:
    """The page."""
    return page(
        "diagnosis",
        "diagnosis",
        "What slowrank concludes of one engine. Look at the largest area of lost time: it is what its repair gives back.",
        [JUDGED],
        [
            Row("", 4, [_lost_now(), _confidence(), _age()]),
            Row("", 4, [_timeline()]),
            Row("", 11, [_by_cause()]),
            Row("Who", 9, [_culprits(), _incidents()]),
            Row("What the ranks do", 10, [_lateness(), _waits(), _step_time()]),
        ],
    )


def _lost_now() -> Any:
    return number(
        "Step time lost",
        "Share of step time lost in the newest window, all causes. Healthy engines lose up to 3 % by chance. No data: the signals do"
        " not say.",
        "percentunit",
        Query(lost_time(HERE)),
        Steps(0.03, 0.05),
    )


def _confidence() -> Any:
    return number(
        "Confidence",
        "How sure the newest verdict is; of a healthy verdict too. Low: the report's `missing` says which signals would raise it.",
        "percentunit",
        Query(f"max({exported.CONFIDENCE}{{{HERE}}})"),
    )


def _age() -> Any:
    return number(
        "Age of the verdict",
        "Time since the end of the newest window. Bad: minutes; then everything here is old.",
        "s",
        Query(f"time() - max({exported.DIAGNOSED_AT}{{{HERE}}})"),
        Steps(60, 300),
    )


def _timeline() -> Any:
    return classes(
        "Verdict",
        "The class of the verdict through time. Bad: a colour that stays; grey says that no verdict was possible.",
        Query(class_numbers(HERE), "{{engine}}"),
    )


def _by_cause() -> Any:
    return lines(
        "Lost time by cause",
        "Share of step time, stacked: what each repair would give back, and what no cause explains yet. Bad: an area that begins and"
        " stays; two"
        " areas that swap are two names of one thing. Confirmed incidents are marked.",
        "percentunit",
        Query(lost_by_cause(HERE), "{{cause}}"),
        stacked=True,
    )


def _culprits() -> Any:
    return table(
        "Ranks that the verdict names",
        "Of a load or a layout the ranks are where it shows now, and change; of a single point they are what to repair. None: the"
        " signals cannot"
        " name one, and the report says what would tell.",
        {"Named": Query(f"max by (engine, rank, cause) ({exported.CULPRIT}{{{HERE}}})")},
        hidden=["Value", "Named", "engine"],
        overrides=[
            column(
                "rank", link=Link("Rank", "/d/slowrank-rank?var-engine=${engine:percentencode}&var-rank=${__value.raw}&${__url_time_range}")
            )
        ],
        by="rank",
    )


def _incidents() -> Any:
    return table(
        "Open incidents",
        "Causes through time. Suspected wakes nobody; confirmed was told. Bad: one that stays suspected for long is near its limit.",
        {"Open": Query(f"max by (class, cause, severity, state) ({exported.INCIDENT}{{{HERE}}})")},
        hidden=["Value", "Open"],
        overrides=[],
        by="cause",
    )


def _lateness() -> Any:
    return heat(
        "Lateness",
        "How late each rank is at the host exchanges, as the verdict saw it. Bad: one high row that stays.",
        "s",
        Query(f"max by (rank) ({exported.LATENESS}{{{HERE}}})", "{{rank}}"),
    )


def _waits() -> Any:
    return heat(
        "Wait per step",
        "How long each rank waits for the others, as the verdict saw it. Bad: one low row among high ones.",
        "s",
        Query(f"max by (rank) ({exported.WAIT}{{{HERE}}})", "{{rank}}"),
    )


def _step_time() -> Any:
    return lines(
        "Step time",
        "Of the group, as the verdict saw it. Bad: a rise at the same load.",
        "s",
        Query(f"max({exported.STEP_SECONDS}{{{HERE}}})", "step time", SUBJECT),
    )
