"""`slowrank explain`: what a rule asks, what it needs, where its limits come from, what to do when it fires."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from collector.errors import ConfigError
from diagnose.report.plain import wrap
from slowrank.terminal import say, width

if TYPE_CHECKING:
    from diagnose.rules import Rule


def explain(
    rule: Annotated[str | None, typer.Argument(metavar="[RULE]", help="A rule's id; without it, all rules are listed.")] = None,
) -> None:
    """What a diagnosis rule asks, needs and answers, with its runbook."""
    from diagnose.rules import load

    rules = load()
    say("\n".join(listing(rules) if rule is None else lesson(pick(rules, rule), width())))


def pick(rules: Mapping[str, Rule], name: str) -> Rule:
    """The rule of that name; ConfigError names the nearest one."""
    if name in rules:
        return rules[name]
    near = difflib.get_close_matches(name, rules, n=1, cutoff=0.3)
    raise ConfigError(f"no rule is called {name!r}" + (f"; did you mean {near[0]}?" if near else "; `slowrank explain` lists all rules"))


def listing(rules: Mapping[str, Rule]) -> Iterator[str]:
    """All rules by class."""
    widest = max((len(name) for name in rules), default=0)
    for klass in dict.fromkeys(rule.klass for rule in sorted(rules.values(), key=lambda r: r.klass.value)):
        yield klass.value
        yield from (f"  {rule.id:<{widest}}  {rule.title}" for rule in rules.values() if rule.klass is klass)
    yield ""
    yield "slowrank explain RULE shows what a rule needs, its limits and its runbook."


def lesson(rule: Rule, columns: int) -> Iterator[str]:
    """Everything that is known about one rule."""
    from collector.signals import CATALOGUE

    yield f"{rule.id} ({rule.klass.value}, {rule.severity.value})"
    yield from rule.doc.strip().splitlines()
    yield from ("", "Needs")
    for name in rule.needs:
        yield from _item(f"{name}: {CATALOGUE[name].about}" if name in CATALOGUE else name, columns)
    if not rule.needs:
        yield "  nothing"
    if rule.thresholds:
        yield from ("", "Limits")
        for name, limit in rule.thresholds.items():
            yield from _item(f"{name} = {limit.value:g} {limit.unit}: {' '.join(limit.why.split())}", columns)
    yield from ("", "Remedy", *wrap(rule.remedy, columns, "  "))
    yield from ("", "Runbook", "", rule.runbook.rstrip())


def _item(text: str, columns: int) -> list[str]:
    return wrap(f"- {text}", columns, "  ", "    ")
