"""Every expression of panels, annotations and rules as a tree, by the grammar of Prometheus 3: rates of counters, levels as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import promql_parser
import pytest

from collector import exported
from dashboards.quantities import QUANTITIES
from dashboards.recording import BALANCEDNESS, DERIVED, recordings
from dashboards.rules import alertings
from dashboards.series import WINDOW

FAMILIES = {name: f for f in (*exported.of_signals().values(), *exported.FAMILIES.values()) for name in f.series}
RECORDED = {*QUANTITIES, BALANCEDNESS, *(d.record for d in DERIVED)}
RATES = {"rate", "increase"}
BARE = {exported.RULE_FAILURES, exported.BREAKAGES, exported.RELOADS}
"""Counters that some expression asks whether they left zero, or compares with their own past."""


@dataclass(frozen=True)
class Selected:
    """One series that is asked for: its name, the labels of its matchers, and what is done with it. `over` in seconds; 0: as it is."""

    name: str
    labels: frozenset[str]
    function: str = ""
    over: float = 0.0


def selected(node, function: str = "", over: float = 0.0) -> Iterator[Selected]:
    """All series of a tree. The function is the innermost one around a range."""
    match node:
        case promql_parser.VectorSelector():
            yield Selected(node.name or "", frozenset(m.name for m in node.matchers.matchers), function if over else "", over)
        case promql_parser.MatrixSelector():
            yield from selected(node.vector_selector, function, node.range.total_seconds())
        case promql_parser.SubqueryExpr():
            yield from selected(node.expr)
        case promql_parser.Call():
            for argument in node.args:
                yield from selected(argument, node.func.name)
        case promql_parser.BinaryExpr():
            yield from selected(node.lhs)
            yield from selected(node.rhs)
        case promql_parser.AggregateExpr():
            yield from selected(node.expr)
            if node.param is not None:
                yield from selected(node.param)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield from selected(node.expr)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            return
        case _:
            raise AssertionError(f"no such part is known here: {node!r}")


def grouped(node) -> set[str]:
    """Labels that aggregations and matchings of a tree name."""
    found: set[str] = set()
    if isinstance(node, promql_parser.BinaryExpr):
        found = grouped(node.lhs) | grouped(node.rhs)
        if node.modifier is not None:
            found |= set(node.modifier.matching.labels if node.modifier.matching else ()) | set(node.modifier.group_labels or ())
    elif isinstance(node, promql_parser.AggregateExpr):
        found = grouped(node.expr) | set(node.modifier.labels if node.modifier else ())
    elif isinstance(node, promql_parser.Call):
        found = set().union(*map(grouped, node.args)) if node.args else set()
    elif isinstance(node, promql_parser.ParenExpr | promql_parser.UnaryExpr | promql_parser.SubqueryExpr):
        found = grouped(node.expr)
    return found


def counts(name: str) -> bool:
    """Whether a series only grows: by our own table, and by Prometheus' suffixes for the engines'."""
    return FAMILIES[name].kind is not exported.Kind.GAUGE if name in FAMILIES else name.endswith(("_total", "_sum", "_count", "_bucket"))


def labels_of(name: str) -> set[str]:
    """Labels of a series of ours. KeyError for one that nobody defines."""
    if name in RECORDED:
        return {"engine", "rank", "source"}
    return {*FAMILIES[name].labels, *(["le"] if name.endswith("_bucket") else [])}


@pytest.fixture(scope="module")
def shown(asked):
    """Trees of panels and annotations, with the values of their variables."""
    return [(f"{q.page}: {q.panel}", promql_parser.parse(q.with_values(source="slowrank"))) for q in asked]


@pytest.fixture(scope="module")
def everything(shown):
    """Those, and the trees of all rules."""
    recorded = [(rule.record, promql_parser.parse(rule.expr)) for rule in recordings()]
    return [*shown, *recorded, *((rule.name, promql_parser.parse(rule.expr)) for rule in alertings())]


def test_the_parser_checks_types():
    """Parsing in the fixtures above can fail: a rate of an instant vector is refused."""
    with pytest.raises(ValueError, match="expected type"):
        promql_parser.parse("rate(slowrank_scrapes_total)")


def test_the_walk_sees_what_is_asked():
    """Inside aggregations, their parameters, functions, subqueries and matchings: nothing is passed over."""
    tree = promql_parser.parse(
        'topk(scalar(a_total), -sum by (x) (rate(b_total{l="1"}[5m]))) / on (y) group_left (z) (max_over_time((c_sum + 1)[1h:1m]) or d)'
    )
    found = {s.name: (s.labels, s.function, s.over) for s in selected(tree)}
    assert found == {
        "a_total": (frozenset(), "", 0.0),
        "b_total": (frozenset({"l"}), "rate", 300.0),
        "c_sum": (frozenset(), "", 0.0),
        "d": (frozenset(), "", 0.0),
    }
    assert grouped(tree) == {"x", "y", "z"}


def test_counters_are_only_read_as_rates(everything):
    """A total says how long a process lives; engines' counters too. The exceptions are named above."""
    bare = {s.name for _, tree in everything for s in selected(tree) if counts(s.name) and s.function not in RATES}
    assert bare == BARE


def test_levels_are_never_read_as_rates(everything):
    """A rate of a gauge is noise that looks like a number."""
    assert {s.name for _, tree in everything for s in selected(tree) if not counts(s.name) and s.function in RATES} == set()


def test_rates_of_panels_follow_the_scrape_interval(asked, shown):
    """They are taken over $__rate_interval; an increase may name the time that its title names."""
    for query, (where, tree) in zip(asked, shown, strict=True):
        for series in selected(tree):
            if series.function == "rate":
                assert f"{series.name}" in query.expr
                assert "$__rate_interval]" in query.expr, where
                assert series.over == 60.0, where  # what the tests put for it
            elif series.over:
                assert (series.function, series.over) == ("increase", 3600.0), where
    assert not any("rate(" in q.expr and "[1m]" in q.expr for q in asked)


def test_rules_take_rates_over_their_window():
    """Four scrapes at 15 s; alerts on slowrank itself look at longer times, none at less."""
    seconds = {"1m": 60.0}[WINDOW]
    over = {s.over for rule in recordings() for s in selected(promql_parser.parse(rule.expr)) if s.over}
    assert over == {seconds}
    assert {s.over for rule in alertings() for s in selected(promql_parser.parse(rule.expr)) if s.over} == {300.0, 600.0, 900.0}


def test_series_exist_under_the_labels_that_they_are_asked_by(everything):
    """Each series of ours is one that our page's table or the recording rules define; matchers and groupings name labels that it has."""
    for where, tree in everything:
        series = list(selected(tree))
        if any(s.name.startswith(("sglang", "vllm")) for s in series):
            continue  # what engines serve is asked of recorded pages
        labels = {s.name: labels_of(s.name) for s in series}
        for one in series:
            assert one.labels <= labels[one.name], (where, one)
        assert grouped(tree) <= set().union(*labels.values()), where
