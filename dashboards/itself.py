"""slowrank itself: does it see, judge and tell? For whoever runs it."""

from __future__ import annotations

from typing import Any

from collector import exported
from dashboards.largest import largest
from dashboards.look import VERMILLION
from dashboards.page import Row, page
from dashboards.panels import MAX_LINES, Query, Steps, lines, number

_PAGE = "engine, node, source"


def dashboard() -> dict[str, Any]:
    """The page."""
    return page(
        "itself",
        "slowrank itself",
        "Is slowrank able to see, judge and tell? Look at failing scrapes first: whatever is not read is not judged.",
        [],
        [
            Row("", 4, [_versions(), _problems(), _pending(), _failing_rules(), _memory(), _descriptors()]),
            Row("Does it see?", 9, [_outcomes(), _ages(), _late()]),
            Row("What reading costs", 9, [_durations(), _cost(), _bytes(), _store()]),
            Row("Does it judge?", 9, [_verdict_ages(), _diagnoses(), _rule_failures()]),
            Row("Does it tell?", 8, [_deliveries(), _outbox(), _reloads()]),
        ],
    )


def _rate(counter: str, by: str) -> str:
    return f"sum by ({by}) (rate({counter}[$__rate_interval]))"


def _versions() -> Any:
    return number(
        "Running",
        "Processes of slowrank that are scraped. Bad: none, or fewer than shards were started.",
        "short",
        Query(f"count({exported.BUILD})"),
    )


def _problems() -> Any:
    return number(
        "Problems",
        "Of targets, receivers and files, now; slowrank's status page has them in words. Bad: any that lasts.",
        "short",
        Query(f"sum({exported.PROBLEMS}) or 0 * count({exported.BUILD})"),
        Steps(1, None),
    )


def _descriptors() -> Any:
    return number(
        "Open descriptors",
        "Of the process with the most. Bad: it grows for hours; a few for each node are normal.",
        "short",
        Query(f"max({exported.DESCRIPTORS})"),
    )


def _cost() -> Any:
    return lines(
        "Cost to an engine's node",
        f"Share of one core that rendering its metrics page takes at most, the {MAX_LINES} dearest, and the budget. Bad: above the budget:"
        " a window would else hold too few pages.",
        "percentunit",
        Query(
            largest(
                MAX_LINES, f'sum by (engine, node) (rate({exported.SCRAPE_SECONDS}{{source="metrics"}}[$__rate_interval]))', "engine, node"
            ),
            "{{node}}",
        ),
        Query(f"max({exported.SCRAPE_BUDGET})", "budget", VERMILLION),
        reach=0.005,  # the budget's default
    )


def _memory() -> Any:
    return number(
        "Memory", "Resident memory of the largest process. Bad: it grows for hours.", "bytes", Query(f"max({exported.RESIDENT_BYTES})")
    )


def _pending() -> Any:
    return number(
        "Alerts not delivered",
        "Notifications that receivers have not taken. Bad: any for minutes. No data: no receiver is configured, and nobody is told.",
        "short",
        Query(f"sum({exported.OUTBOX})"),
        Steps(1, None),
    )


def _failing_rules() -> Any:
    return number(
        "Rules that failed",
        "Diagnosis rules that raised an error since the start. Bad: any; it is a defect of slowrank.",
        "short",
        Query(f"count(max by (rule) ({exported.RULE_FAILURES}) > 0) or 0 * count({exported.BUILD})"),
        Steps(None, 1),
    )


def _outcomes() -> Any:
    return lines(
        "Pages by outcome",
        f"Pages asked for per second; `{exported.OK}` is what one wants. Bad: any other outcome that lasts: `slowrank doctor` names it.",
        "reqps",
        Query(_rate(exported.SCRAPES, "source, outcome"), "{{source}}: {{outcome}}"),
        stacked=True,
    )


def _ages() -> Any:
    return lines(
        "Age of the newest page",
        f"The {MAX_LINES} oldest. Bad: it grows: the page does not come, or is unusable.",
        "s",
        Query(largest(MAX_LINES, f"max by ({_PAGE}) ({exported.PAGE_AGE})", _PAGE), "{{node}} {{source}}"),
    )


def _late() -> Any:
    return lines(
        "How late pages are asked for",
        f"What 99% of an engine's pages keep, the {MAX_LINES} latest engines. Good: .1 s. Bad: near .5 s: slowrank has too little CPU.",
        "s",
        Query(
            largest(MAX_LINES, f"histogram_quantile(0.99, {_rate(f'{exported.SCRAPE_LATE}_bucket', 'engine, le')})", "engine"), "{{engine}}"
        ),
        steps=Steps(0.5, None),
        reach=1,
    )


def _durations() -> Any:
    return lines(
        "Time for a page",
        f"From request to reply, mean, the {MAX_LINES} slowest. Bad: it rises: the engine renders for long, or hangs.",
        "s",
        Query(
            largest(MAX_LINES, f"{_rate(exported.SCRAPE_SECONDS, _PAGE)} / {_rate(exported.SCRAPES, _PAGE)}", _PAGE), "{{node}} {{source}}"
        ),
    )


def _bytes() -> Any:
    return lines(
        "Bytes read",
        "By kind of page. Bad: it grows without more engines: a label with ever new values.",
        "Bps",
        Query(_rate(exported.SCRAPE_BYTES, "source"), "{{source}}"),
        stacked=True,
    )


def _store() -> Any:
    return lines(
        "Memory of the last minutes",
        f"Per engine, the {MAX_LINES} largest. Bad: it grows: it is bounded by ranks and signals.",
        "bytes",
        Query(largest(MAX_LINES, f"max by (engine) ({exported.STORE_BYTES})", "engine"), "{{engine}}"),
    )


def _verdict_ages() -> Any:
    return lines(
        "Age of verdicts",
        f"The {MAX_LINES} oldest. Bad: beyond 5 minutes: nobody would be told of anything.",
        "s",
        Query(largest(MAX_LINES, f"time() - max by (engine) ({exported.DIAGNOSED_AT})", "engine"), "{{engine}}"),
        steps=Steps(None, 300),
    )


def _diagnoses() -> Any:
    return lines(
        "CPU of a verdict",
        f"Mean, the {MAX_LINES} dearest engines. Bad: tenths of a second: fewer engines for each slowrank.",
        "s",
        Query(
            largest(MAX_LINES, f"{_rate(exported.DIAGNOSIS_SECONDS, 'engine')} / {_rate(exported.DIAGNOSES, 'engine')}", "engine"),
            "{{engine}}",
        ),
    )


def _rule_failures() -> Any:
    return lines(
        "Errors of diagnosis rules",
        "Per second. Bad: any: the rule's cause cannot be found, and the verdict says insufficient evidence.",
        "ops",
        Query(f'{_rate(exported.RULE_FAILURES, "rule")} or label_replace(0 * count({exported.BUILD}), "rule", "none", "", "")', "{{rule}}"),
    )


def _deliveries() -> Any:
    return lines(
        "Deliveries by outcome",
        "Attempts per second. Bad: attempts that fail for more than ten minutes. No data: no receiver is configured.",
        "ops",
        Query(_rate(exported.DELIVERIES, "receiver, outcome"), "{{receiver}}: {{outcome}}"),
        stacked=True,
    )


def _outbox() -> Any:
    return lines(
        "Not delivered",
        "Notifications owed, by receiver. Bad: more than none for ten minutes. No data: no receiver is configured.",
        "short",
        Query(f"max by (receiver) ({exported.OUTBOX})", "{{receiver}}"),
    )


def _reloads() -> Any:
    return lines(
        "Reloads of the configuration",
        f"In an hour, by outcome. Bad: any that is not `{exported.OK}`: the old configuration is still in use.",
        "short",
        Query(f"sum by (outcome) (increase({exported.RELOADS}[1h]))", "{{outcome}}"),
    )
