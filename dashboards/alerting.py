"""Alerting rules for Prometheus: one for each diagnosis rule, and those on slowrank's own health. Pure; `dashboards.rules` writes them.

They are for those who page from Prometheus. slowrank can also tell Alertmanager itself (docs/alerts.md), under the same alert names: use
one of the two. Persistence is judged by slowrank's incidents, so that the rules on findings wait for nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from collector import exported
from diagnose.incident_model import Policy, State
from diagnose.model import Class, Severity
from diagnose.rules import Rule

STALE_MINUTES = round(Policy().stale / 60)


@dataclass(frozen=True, slots=True)
class Alerting:
    """One alerting rule. `why` is the reason of its numbers; durations are Prometheus'."""

    name: str
    expr: str
    why: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    hold: str = ""  # `for`


def of_finding(rule: Rule, runbooks: str = "") -> Alerting:
    """The alerting rule of a diagnosis rule: fires with its first confirmed incident on an engine. `runbooks`: see `health`."""
    incident = f"{exported.INCIDENT}{{cause={_quoted(rule.id)},state={_quoted(State.CONFIRMED.value)}}}"
    now, before = (f"max by (engine, class, severity) ({seen}) > 0" for seen in (incident, f"last_over_time({incident}[{STALE_MINUTES}m])"))
    ranks = f"{exported.CULPRIT}{{engine=%q,cause={_quoted(rule.id)}}} == 1"
    lost = f"{exported.LOST}{{engine=%q,cause={_quoted(rule.id)}}}"
    return Alerting(
        name=f"slowrank_{rule.id}",
        expr=f"{now} or ({before} unless on (engine) {exported.ENGINE_UP})",
        why=f"confirmed by slowrank, and over when it says so; while nothing is heard of it kept for {STALE_MINUTES} min, within which a"
        " restarted slowrank has its incidents back from their file",
        annotations={
            "summary": f"{{{{ $labels.engine }}}}: {_text(rule.title)}",
            "ranks": f"{{{{ range printf {_go(ranks)} $labels.engine | query | sortByLabel {_go('rank')} }}}}"
            "{{ .Labels.rank }} {{ else }}none named now{{ end }}",
            "lost": f"{{{{ with printf {_go(lost)} $labels.engine | query }}}}{{{{ . | first | value | humanizePercentage }}}} of step time"
            "{{ else }}no figure{{ end }}",
            "remedy": _text(rule.remedy),
            "runbook": f"slowrank explain {rule.id}",
            "dashboard": "/d/slowrank-diagnosis?var-engine={{ urlquery $labels.engine }}",
            **_runbook_url(runbooks, f"{rule.id}.md"),
        },
    )


def health(runbooks: str = "") -> Iterator[Alerting]:
    """The alerting rules on slowrank itself. `runbooks`: the address under which docs/ and the runbooks are published; empty: nowhere."""

    def rule(name: str, severity: Severity, expr: str, hold: str, summary: str, remedy: str, why: str) -> Alerting:
        annotations = {"summary": summary, "remedy": remedy, "dashboard": "/d/slowrank-itself"}
        return Alerting(
            name, expr, why, {"severity": severity.value}, {**annotations, **_runbook_url(runbooks, f"dashboards.md#{name}")}, hold
        )

    yield rule(
        "slowrank_absent",
        Severity.TICKET,
        f"absent({exported.BUILD})",
        "5m",
        "No slowrank is scraped: nobody looks for slow ranks",
        "See whether `slowrank serve` runs and is a scrape target of this Prometheus.",
        "five minutes outlast a restart and a rolled-out version",
    )
    yield rule(
        "slowrank_engine_unread",
        Severity.TICKET,
        f"max by (engine) ({exported.ENGINE_UP}) == 0",
        "2m",
        "{{ $labels.engine }}: no usable page comes from this engine",
        "Run `slowrank doctor` on the engine: it names the page, what came back, and the next step.",
        "a model that restarts is often back within two minutes, and the engine is called down after 15 s without a page",
    )
    yield rule(
        "slowrank_diagnosis_stale",
        Severity.TICKET,
        f"time() - max by (engine) ({exported.DIAGNOSED_AT}) > {STALE_MINUTES * 60}",
        "1m",
        "{{ $labels.engine }}: the last verdict is {{ $value | humanizeDuration }} old",
        "Pages may come without what a verdict needs, or slowrank is overloaded: see scrapes and diagnosis time on its dashboard.",
        f"{STALE_MINUTES} min is the age from which an incident is told to be without data (diagnose/incident_model.py)",
    )
    yield rule(
        "slowrank_rule_failing",
        Severity.TICKET,
        _grew("rule", exported.RULE_FAILURES, "10m"),
        "",
        "The diagnosis rule {{ $labels.rule }} raises an error: its cause cannot be found",
        "A defect of slowrank: report it with the log and a capture (`slowrank record`).",
        "any failure is one too many; the verdict says insufficient evidence meanwhile",
    )
    yield rule(
        "slowrank_watch_broke",
        Severity.TICKET,
        _grew("engine", exported.BREAKAGES, "10m"),
        "",
        "{{ $labels.engine }}: the watch of this engine broke and began anew",
        "A defect of slowrank: report it with the log and a capture (`slowrank record`).",
        "each time costs the engine's last minutes, and its past; one is one too many",
    )
    yield rule(
        "slowrank_delivery_stuck",
        Severity.PAGE,
        f"max by (receiver) ({exported.OUTBOX}) > 0",
        "10m",
        "Alerts wait for {{ $labels.receiver }}: people are not told",
        "See the receiver's last answer in slowrank's log and on its status page; `slowrank alert test` tries it out.",
        "ten minutes are the longest outage that delivery is proven to outlast without help (docs/alerts.md)",
    )
    yield rule(
        "slowrank_scrapes_late",
        Severity.NOTE,
        f"sum by (engine) (rate({exported.SCRAPE_LATE}_sum[5m])) / sum by (engine) (rate({exported.SCRAPE_LATE}_count[5m])) > 0.5",
        "10m",
        "{{ $labels.engine }}: pages are asked for {{ $value | humanizeDuration }} late on average",
        "Give slowrank more CPU, or share the engines among several of it.",
        "half the interval of /v1/loads (1 s): beyond, windows lose the points that verdicts are made of",
    )
    yield rule(
        "slowrank_reload_failed",
        Severity.TICKET,
        _grew("outcome", f'{exported.RELOADS}{{outcome!="{exported.OK}"}}', "15m"),
        "",
        "slowrank did not take its changed configuration and goes on with the old one",
        "Run `slowrank serve --check` with the file: it names the key and the nearest valid one.",
        "shown for a quarter of an hour, long enough for whoever made the change to see it",
    )
    yield rule(
        "slowrank_cannot_tell",
        Severity.NOTE,
        f'max by (engine) ({exported.VERDICT}{{class="{Class.INSUFFICIENT.value}",cause=""}}) == 1',
        "1h",
        "{{ $labels.engine }}: for an hour no verdict was possible",
        "Run `slowrank doctor` on the engine: it lists what is missing and the flag for each. An idle engine gives no verdict either.",
        "an hour without load or data is no pause any more; it wakes nobody",
    )


def _grew(label: str, counter: str, window: str) -> str:
    """A counter that grew, or began above zero: `increase` does not see the first value of a new series."""
    return f"sum by ({label}) (increase({counter}[{window}])) > 0 or sum by ({label}) ({counter} unless {counter} offset {window}) > 0"


def _runbook_url(base: str, page: str) -> dict[str, str]:
    return {"runbook_url": f"{base.rstrip('/')}/{page}"} if base else {}


def _text(words: str) -> str:
    """Words that are not ours to be run: a template's brackets are shown, not expanded."""
    return words.replace("{{", '{{ "{{" }}')


def _quoted(value: str) -> str:
    return f'"{value}"'


def _go(text: str) -> str:
    """A string literal of Go's templates that needs no escapes for the quotes in PromQL."""
    return f"`{text}`"
