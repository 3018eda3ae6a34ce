"""The file of recording and alerting rules, as Prometheus, Thanos, Mimir and vmalert read it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from dashboards.alerting import Alerting, health, of_finding
from dashboards.recording import Recording, recordings
from diagnose.rules import load

FILE = "slowrank.rules.yaml"

_HEAD = "# Made by `slowrank rules build`; do not edit. Tried with Prometheus 2.42; needs scrapes at least every 15 s."


def alertings(runbooks: str = "") -> Iterator[Alerting]:
    """All alerting rules: those on findings by name, then those on slowrank itself."""
    for rule in load().values():
        yield of_finding(rule, runbooks)
    yield from health(runbooks)


def text(runbooks: str = "") -> str:
    """The whole file. `runbooks`: the address under which runbooks and docs are published; empty: alerts have no `runbook_url`."""
    lines = [_HEAD, "groups:"]
    lines += _group("slowrank-recording", (line for rule in recordings() for line in _recording(rule)))
    lines += _group("slowrank-alerting", (line for rule in alertings(runbooks) for line in _alerting(rule)))
    return "\n".join(lines) + "\n"


def _group(name: str, rules: Iterable[str]) -> list[str]:
    return [f"  - name: {name}", "    rules:", *rules]


def _recording(rule: Recording) -> Iterator[str]:
    yield f"      # {rule.about}"
    yield f"      - record: {rule.record}"
    yield f"        expr: {_scalar(rule.expr)}"
    if rule.source is not None:
        yield from _mapping("labels", {"source": rule.source.value})


def _alerting(rule: Alerting) -> Iterator[str]:
    yield f"      # {rule.why}"
    yield f"      - alert: {rule.name}"
    yield f"        expr: {_scalar(rule.expr)}"
    if rule.hold:
        yield f"        for: {rule.hold}"
    yield from _mapping("labels", rule.labels)
    yield from _mapping("annotations", rule.annotations)


def _mapping(name: str, values: Mapping[str, str]) -> Iterator[str]:
    if values:
        yield f"        {name}:"
        yield from (f"          {key}: {_scalar(value)}" for key, value in values.items())


def _scalar(value: str) -> str:
    """A string that YAML reads as it is: JSON's strings are YAML's double-quoted ones."""
    return json.dumps(value, ensure_ascii=False)
