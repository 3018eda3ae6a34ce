"""What every rule must have, checked on all of them; the list of rules is kept here and nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from collector.signals import CATALOGUE
from diagnose.model import Class
from diagnose.rules import load

RULES = {
    "burst_misrouted": Class.LOAD,
    "idle_lockstep": Class.LOAD,
    "outside_the_ranks": Class.OUTSIDE,
    "prefill_drags_decode": Class.STRUCTURAL,
    "slow_process": Class.SINGLE_POINT,
    "context_length_skew": Class.LOAD,
    "dispatch_skew": Class.STRUCTURAL,
    "expert_hotspot": Class.STRUCTURAL,
    "graph_fallback": Class.STRUCTURAL,
    "kv_pressure": Class.LOAD,
    "pd_queue_skew": Class.LOAD,
    "prefix_cache_skew": Class.LOAD,
    "host_cpu_starved": Class.SINGLE_POINT,
    "long_prefill": Class.LOAD,
    "request_count_skew": Class.LOAD,
    "slow_node": Class.SINGLE_POINT,
    "slow_rank": Class.SINGLE_POINT,
    "speculation_skew": Class.LOAD,
    "stale_ledger": Class.LOAD,
    "stuck_rank": Class.SINGLE_POINT,
    "whole_group_slow": Class.INSUFFICIENT,
    "gpu_throttled": Class.SINGLE_POINT,
    "gpu_degraded": Class.SINGLE_POINT,
    "link_degraded": Class.SINGLE_POINT,
}


def test_the_rules_and_their_classes():
    """Exactly these rules exist, each with its class."""
    assert {rule.id: rule.klass for rule in load().values()} == RULES


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_a_runbook_has_its_four_parts(rule_id):
    """The runbook beside the rule is titled with its id and has Meaning, Impact, Diagnosis, Mitigation, in this order."""
    lines = load()[rule_id].runbook.splitlines()
    assert lines[0] == f"# {rule_id}"
    assert [line for line in lines if line.startswith("## ")] == ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_a_rule_says_what_it_detects_why_it_matters_and_what_it_is_not(rule_id):
    """The docstring holds the three paragraphs, and the other rules it points at exist."""
    doc = load()[rule_id].doc
    assert all(part in doc for part in ("What it detects:", "Why it matters:", "Not this rule:"))
    named = {word for word in doc.replace("`", " ").replace(",", " ").replace(")", " ").split() if word in RULES}
    assert rule_id not in named
    assert doc.count("`") == 2 * len([w for w in doc.split("`")[1::2] if w in RULES])


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_every_need_is_in_the_catalogue_and_every_threshold_has_a_measured_reason(rule_id):
    """Needs are catalogue names; a threshold's reason is a sentence with a number in it."""
    rule = load()[rule_id]
    assert rule.needs
    assert set(rule.needs) <= set(CATALOGUE)
    assert rule.thresholds
    for name, threshold in rule.thresholds.items():
        assert len(threshold.why) > 40, name
        assert any(c.isdigit() for c in threshold.why), name


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_a_rule_is_one_pure_function(rule_id):
    """A rule file imports no clock, environment, network or log, and defines its rule function without a call of print or open."""
    source = (Path(load.__wrapped__.__code__.co_filename).parent / f"{rule_id}.py").read_text()
    tree = ast.parse(source)
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & {"time", "os", "httpx", "logging", "datetime", "pathlib", "subprocess"}
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not called & {"print", "open"}
