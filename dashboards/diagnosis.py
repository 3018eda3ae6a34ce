"""One engine's verdicts through time: which cause, what it costs, how sure. For whoever decides what is repaired first."""

from __future__ import annotations

from typing import Any

from collector import exported
from dashboards.look import GREY, SUBJECT, WORTH
from dashboards.page import JUDGED, Row, page
from dashboards.panels import Link, Query, Steps, by_name, classes, heat, lines, number
from dashboards.tables import class_column, column, table
from dashboards.verdicts import cause_colours, class_numbers, lost_by_cause, lost_time

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
            Row("Who", 7, [_culprits(), _incidents()]),
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
        "The class of the verdict through time. Bad: a colour that stays; grey says that no verdict was possible, yellow that the engine is"
        " not read.",
        Query(class_numbers(HERE), "{{engine}}"),
    )


def _by_cause() -> Any:
    return lines(
        "Lost time by cause",
        "Share of step time, stacked: what each repair would give back, in the colour of its class, and in grey what no cause explains yet."
        " Bad: an area that begins and stays; two areas that swap are two names of one thing. Confirmed incidents are marked.",
        "percentunit",
        Query(lost_by_cause(HERE), "{{cause}}"),
        stacked=True,
        overrides=[*cause_colours(), by_name("unexplained", GREY)],
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
        first=["rank", "cause"],
    )


def _incidents() -> Any:
    return table(
        "Open incidents",
        "Causes through time. Suspected wakes nobody; confirmed was told. Bad: one that stays suspected for long is near its limit.",
        {"Open": Query(f"max by (class, cause, severity, state) ({exported.INCIDENT}{{{HERE}}})")},
        hidden=["Value", "Open"],
        overrides=[class_column()],
        by="cause",
        first=["cause", "class", "severity", "state"],
    )


def _of_step(series: str) -> str:
    return f"max by (engine, rank) ({series}{{{HERE}}}) / on (engine) group_left () max by (engine) ({exported.STEP_SECONDS}{{{HERE}}})"


def _lateness() -> Any:
    return heat(
        "Lateness",
        f"How late each rank is at the host exchanges, as the verdict saw it, as a share of the step. The scale ends at {WORTH:.0%}. Bad:"
        " one high row that stays.",
        "percentunit",
        Query(_of_step(exported.LATENESS), "{{rank}}"),
        WORTH,
    )


def _waits() -> Any:
    return heat(
        "Wait",
        f"How long each rank waits for the others, as the verdict saw it, as a share of the step. The scale ends at {WORTH:.0%}. Bad: one"
        " low row among high ones.",
        "percentunit",
        Query(_of_step(exported.WAIT), "{{rank}}"),
        WORTH,
    )


def _step_time() -> Any:
    return lines(
        "Step time",
        "Of the group, as the verdict saw it. Bad: a rise at the same load.",
        "s",
        Query(f"max({exported.STEP_SECONDS}{{{HERE}}})", "step time", SUBJECT),
    )
