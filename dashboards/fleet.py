"""The fleet: which engine is in trouble, and what it costs. For whoever is called first."""

from __future__ import annotations

from typing import Any

from collector import exported
from dashboards.largest import largest
from dashboards.page import Row, page
from dashboards.panels import MAX_LINES, Link, Query, Steps, classes, lines, number
from dashboards.recording import HOST_LOSS, RANKS, SKEW
from dashboards.tables import class_column, column, table, yes_or_no
from dashboards.verdicts import class_numbers, lost_time
from diagnose.incident_model import State
from diagnose.model import Class

_BY = "engine, class, cause, severity"
_JUDGED = f"max by ({_BY}) ({exported.VERDICT})"
_BLAMED = f'{exported.VERDICT}{{class!~"{Class.HEALTHY.value}|{Class.INSUFFICIENT.value}"}}'
_DOWN = f"max by (engine) ({exported.ENGINE_UP}) == 0"


def dashboard() -> dict[str, Any]:
    """The page."""
    return page(
        "fleet",
        "fleet",
        "All engines at a glance. Look at the red rows of the timeline first, then at what each costs; a click on an engine opens its"
        " page.",
        [],
        [
            Row("", 4, [_engines(), _troubled(), _worst(), _blind(), _unread(), _incidents()]),
            Row("", 9, [_timeline()]),
            Row("", 9, [_table()]),
            Row("Where time is lost", 10, [_lost(), _hosts(), _skew()]),
        ],
    )


def _engines() -> Any:
    return number(
        "Engines judged",
        "Engines with a verdict. Bad: fewer than are served; see those that are not read.",
        "short",
        Query(f"count(max by (engine) ({exported.VERDICT}))"),
    )


def _troubled() -> Any:
    return number(
        "With a cause",
        "Engines whose newest verdict blames a card, the load, the layout or what is around them. One window only: incidents are what"
        " lasts.",
        "short",
        Query(f"count(max by (engine) ({_BLAMED})) or 0 * count({exported.VERDICT})"),
        Steps(1, None),
    )


def _worst() -> Any:
    return number(
        "Largest loss",
        "Share of step time that the worst engine loses, all causes and what is unexplained. Healthy engines lose up to 3 % by chance. No"
        " data: no engine says.",
        "percentunit",
        Query(f"max({lost_time()})"),
        Steps(0.03, 0.05),
    )


def _blind() -> Any:
    return number(
        "Cannot tell",
        "Engines without enough evidence for a verdict. Neither healthy nor ill: `slowrank doctor` says which flag is missing. Idle"
        " ones are here.",
        "short",
        Query(f'count(max by (engine) ({exported.VERDICT}{{class="{Class.INSUFFICIENT.value}"}})) or 0 * count({exported.VERDICT})'),
    )


def _unread() -> Any:
    return number(
        "Not read",
        "Engines from which no usable page comes. Bad: any; nothing is known of them.",
        "short",
        Query(f"count({_DOWN}) or 0 * count({exported.ENGINE_UP})"),
        Steps(None, 1),
    )


def _incidents() -> Any:
    return number(
        "Incidents",
        "Confirmed incidents that are not over: what people were told of.",
        "short",
        Query(
            f'sum(max by (engine, cause, severity) ({exported.INCIDENT}{{state="{State.CONFIRMED.value}"}})) or 0 * count({exported.BUILD})'
        ),
        Steps(None, 1),
    )


def _timeline() -> Any:
    return classes(
        "Verdicts",
        "The class of each engine's verdict. Bad: a colour that stays. Orange asks for routing, blue for another layout, vermillion for a"
        " card or a host; grey is not healthy, it is unknown; yellow is not even read. Flicker between grey and green is an engine with"
        " little load.",
        Query(class_numbers(), "{{engine}}"),
    )


def _table() -> Any:
    return table(
        "Engines",
        "The newest verdict, worst first; of an engine that is not read, its last. Bad: a large share lost with high confidence. A share"
        " without a cause is in no repair's power yet.",
        {
            "Verdict": Query(_JUDGED),
            "Read": Query(f"{_JUDGED} * on (engine) group_left () max by (engine) ({exported.ENGINE_UP})"),
            "Lost": Query(f"{_JUDGED} * on (engine) group_left () {lost_time()}"),
            "Confidence": Query(f"{_JUDGED} * on (engine) group_left () max by (engine) ({exported.CONFIDENCE})"),
            "Ranks named": Query(f"{_JUDGED} * on (engine) group_left () count by (engine) (max by (engine, rank) ({exported.CULPRIT}))"),
        },
        hidden=["Value #A", "Verdict"],
        overrides=[
            column(
                "engine",
                link=Link("Diagnosis", "/d/slowrank-diagnosis?var-engine=${__value.raw:percentencode}&${__url_time_range}"),
                width=300,
            ),
            column("Lost", "percentunit", 1),
            column("Confidence", "percentunit", 0),
            column("cause", nothing="none"),
            column("Ranks named", nothing="none"),
            class_column(),
            yes_or_no("Read"),
        ],
        by="Lost",
        first=["engine", "class", "cause", "severity"],
    )


def _lost() -> Any:
    return lines(
        "Step time lost",
        f"The {MAX_LINES} engines that lose most. Bad: a step up that stays; healthy engines lose up to 3 % by chance.",
        "percentunit",
        Query(largest(MAX_LINES, lost_time(), "engine"), "{{engine}}"),
        steps=Steps(0.05, None),
    )


def _hosts() -> Any:
    return lines(
        "Waiting for the latest host",
        f"The {MAX_LINES} engines whose ranks wait most of a step for the latest host. Cards may compute meanwhile, so that this is the"
        " most that can be lost to it. Bad: a step up without more load.",
        "percentunit",
        Query(largest(MAX_LINES, f"max by (engine) ({HOST_LOSS.record})", "engine"), "{{engine}}"),
    )


def _skew() -> Any:
    return lines(
        "Attention skew",
        f"The busiest rank's attention work in means, the {MAX_LINES} most skewed engines with more than one rank. 1 is level; 1.85 was"
        f" measured"
        " without a fault. Bad: far above that for minutes, together with lost time.",
        "short",
        Query(largest(MAX_LINES, f"max by (engine) ({SKEW.record} and on (engine, source) {RANKS.record} > 1)", "engine"), "{{engine}}"),
    )
