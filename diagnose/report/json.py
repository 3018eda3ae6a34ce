"""The report for programs: schema slowrank.report/1, published as docs/report.schema.json. Fields may be added, never renamed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from diagnose.model import EngineDiagnosis, Evidence, Finding, Healthy, Outcome, RuleOutcome, Verdict

SCHEMA = "slowrank.report/1"


def to_json(diagnoses: Sequence[EngineDiagnosis]) -> dict[str, Any]:
    """The report of all engines as plain JSON values: UTC times in ISO-8601, null where a number was not observed."""
    document = {
        "schema": SCHEMA,
        "window": {
            "start": _time(min((d.start for d in diagnoses), default=math.nan)),
            "end": _time(max((d.end for d in diagnoses), default=math.nan)),
            "scrapes": sum(d.scrapes for d in diagnoses),
        },
        "engines": [_engine(d) for d in diagnoses],
    }
    finite: dict[str, Any] = _finite(document)
    return finite


def _engine(diagnosis: EngineDiagnosis) -> dict[str, Any]:
    engine, facts = diagnosis.engine, diagnosis.engine.facts
    return {
        "engine": engine.id,
        "kind": engine.kind,
        "role": facts.role,
        "ranks": len(diagnosis.ranks),
        "clock": engine.clock,
        "facts": asdict(facts),
        "window": {"start": _time(diagnosis.start), "end": _time(diagnosis.end), "scrapes": diagnosis.scrapes},
        "step_time": diagnosis.step_time,
        "verdict": _verdict(diagnosis.verdict),
        "rank_table": [asdict(row) for row in diagnosis.ranks],
        "findings": [_outcome(o) for o in diagnosis.outcomes],
        "problems": [asdict(p) for p in diagnosis.problems],
        "notes": list(diagnosis.notes),
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "class": verdict.klass.value,
        "cause": verdict.cause,
        "ranks": list(verdict.ranks),
        "confidence": verdict.confidence,
        "severity": verdict.severity.value,
        "summary": verdict.summary,
        "share": asdict(verdict.share) if verdict.share else None,
        "share_of": verdict.share_of,
        "lost_time": asdict(verdict.lost_time),
        "evidence": _evidence(verdict.evidence),
        "ruled_out": [{"class": r.klass.value, "why": r.why} for r in verdict.ruled_out],
        "missing": [asdict(m) for m in verdict.missing],
        "remedy": verdict.remedy,
        "runbook": verdict.runbook,
        "would_tell": verdict.would_tell,
        "since": _time(verdict.since) if verdict.since is not None else None,
        "also": [_verdict(other) for other in verdict.also],
    }


def _evidence(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [asdict(item) for item in evidence]


def _outcome(entry: RuleOutcome) -> dict[str, Any]:
    return {"rule": entry.rule, **_said(entry.outcome)}


def _said(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Finding):
        return {
            "outcome": "finding",
            "ranks": list(outcome.ranks),
            "share": asdict(outcome.share),
            "share_of": outcome.share_of,
            "confidence": outcome.confidence,
            "summary": outcome.summary,
            "evidence": _evidence(outcome.evidence),
            "would_tell": outcome.would_tell,
            "weakened_by": list(outcome.weakened_by),
        }
    if isinstance(outcome, Healthy):
        return {"outcome": "healthy", "why": outcome.why, "evidence": _evidence(outcome.evidence)}
    return {"outcome": "no-data", "missing": list(outcome.missing), "why": outcome.why}


def _time(seconds: float) -> str | None:
    if not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _finite(value: Any) -> Any:
    """The same value with every NaN and infinity as None, every sequence a list and numpy's scalars as Python's: JSON has none of them."""
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
