"""One home for the names of engines' series: the readers' tables. What evidence and recording rules ask for is what is read."""

from __future__ import annotations

import re

import pytest

from collector import promql
from collector.engines import sglang_metrics, sglang_stored, vllm_metrics
from collector.hardware import dcgm
from dashboards.recording import recordings

READ = {"sglang": {*sglang_metrics.NAMES, *sglang_stored.GAUGES}, "vllm": set(vllm_metrics.NAMES)}

STAND_INS = {"kv_transfer_speed_gb_s_sum", "kv_transfer_speed_gb_s_count", "spec_accept_length"}
"""Of SGLang's /metrics, where /v1/loads is what is read: only there is a person able to look it up in Prometheus."""

EVIDENCE = {name: value for name, value in vars(promql).items() if name.isupper() and isinstance(value, str)} | promql.PD_QUEUES
RECORDED = {f"{rule.record} ({rule.source})": rule.expr for rule in recordings()}


def engines_series(expression: str) -> set[tuple[str, str]]:
    """(engine, name without its prefix)"""
    return set(re.findall(r"\b(sglang|vllm)[:_](\w+)", expression))


@pytest.mark.parametrize("name", [*EVIDENCE, *RECORDED])
def test_what_is_asked_of_prometheus_is_what_is_read_of_pages(name: str) -> None:
    """A series that an engine renamed is followed in its reader; whoever forgets an expression finds it here."""
    expression = {**EVIDENCE, **RECORDED}[name]
    assert {(engine, series) for engine, series in engines_series(expression) if series not in READ[engine]} <= {
        ("sglang", series) for series in STAND_INS
    }
    cards = set(re.findall(r"\bDCGM_FI_DEV_(\w+)\b(?!\()", expression)) - {"NVLINK_"}
    assert cards <= dcgm.FIELDS


def test_the_check_sees_names() -> None:
    """It can fail: each engine is named somewhere, in both spellings, and a name that nobody reads is none."""
    assert {engine for expression in RECORDED.values() for engine, _ in engines_series(expression)} == {"sglang", "vllm"}
    assert engines_series("rate(sglang:gone_total[1m]) or rate(sglang_gone_total[1m])") == {("sglang", "gone_total")}
    assert "gone_total" not in READ["sglang"]
    assert engines_series(promql.STEPS) == {("sglang", "dp_attention_steps_total")}
