"""The JSON report is a contract: every kind of verdict fits the published schema, and its numbers are real numbers or null."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest

from diagnose.model import EngineDiagnosis, LostTime, Share
from diagnose.report.json import SCHEMA, to_json

PUBLISHED = json.loads((Path(__file__).parents[2] / "docs/report.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def contract() -> Any:
    """The published schema, itself checked."""
    jsonschema.Draft202012Validator.check_schema(PUBLISHED)
    return jsonschema.Draft202012Validator(PUBLISHED)


def strict(document: Any) -> Any:
    return json.loads(json.dumps(document, allow_nan=False))


def test_every_kind_of_verdict_fits_the_published_schema(sample: tuple[str, EngineDiagnosis], contract: Any) -> None:
    """A program that reads by the schema can read whatever slowrank concludes."""
    _, diagnosis = sample
    contract.validate(strict(to_json([diagnosis])))


def test_the_design_contract_names_stay(samples: dict[str, EngineDiagnosis]) -> None:
    """The fields of the contract are there under their names, with the values of the diagnosis."""
    report = to_json([samples["load"]])
    assert report["schema"] == SCHEMA == PUBLISHED["properties"]["schema"]["const"]
    assert report["window"] == {"start": "2026-07-30T03:00:00.000Z", "end": "2026-07-30T03:00:20.000Z", "scrapes": 21}
    (engine,) = report["engines"]
    assert {k: engine[k] for k in ("engine", "kind", "role", "ranks", "clock")} == {
        "engine": "http://host:30000",
        "kind": "sglang",
        "role": "unified",
        "ranks": 8,
        "clock": "per-step gather",
    }
    verdict = engine["verdict"]
    assert (verdict["class"], verdict["cause"], verdict["ranks"], verdict["confidence"]) == ("load", "context_length_skew", [0], 0.94)
    assert verdict["lost_time"] == {"share": 0.31, "by_cause": {"unexplained": 0.04, "context_length_skew": 0.27}}
    assert verdict["evidence"][0]["observed"] == 229_376
    assert verdict["evidence"][0]["expected"] == 32_768
    assert verdict["ruled_out"][0] == {"class": "single-point", "why": "rank 0 is no slower per pair than its peers"}
    assert verdict["missing"][0].keys() == {"signal", "enable", "adds"}
    assert [f["outcome"] for f in engine["findings"]] == ["finding", "healthy", "no-data"]


def test_several_causes_stand_in_also_in_the_same_shape(samples: dict[str, EngineDiagnosis], contract: Any) -> None:
    """`also` holds whole verdicts, largest first."""
    verdict = to_json([samples["single_point_and_load"]])["engines"][0]["verdict"]
    assert [v["cause"] for v in verdict["also"]] == ["context_length_skew"]
    assert verdict["also"][0].keys() == verdict.keys()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), np.float64("nan")])
def test_no_nan_or_infinity_ever(samples: dict[str, EngineDiagnosis], contract: Any, bad: float) -> None:
    """A number that is none becomes null wherever it stands."""
    broken = replace(
        samples["load"],
        step_time=bad,
        ranks=tuple(replace(row, lateness=bad, running=bad) for row in samples["load"].ranks),
        verdict=replace(
            samples["load"].verdict,
            confidence=bad,
            share=Share(bad, bad, bad),
            lost_time=LostTime(bad, {"x": bad}),
            evidence=tuple(replace(e, observed=bad, expected=bad, threshold=bad) for e in samples["load"].verdict.evidence),
        ),
    )
    document = strict(to_json([broken]))
    contract.validate(document)
    assert document["engines"][0]["step_time"] is None
    assert document["engines"][0]["verdict"]["lost_time"] == {"share": None, "by_cause": {"x": None}}


def test_numpy_scalars_become_plain_numbers(samples: dict[str, EngineDiagnosis], contract: Any) -> None:
    """Ranks and numbers that come straight out of an array are written like any other."""
    loose: dict[str, Any] = {"ranks": (np.int64(3),), "confidence": np.float32(0.5)}
    verdict = replace(samples["load"].verdict, **loose)
    document = strict(to_json([replace(samples["load"], verdict=verdict)]))
    contract.validate(document)
    assert document["engines"][0]["verdict"]["ranks"] == [3]


def test_the_report_of_nothing_is_still_a_report(contract: Any) -> None:
    """No engine gives an empty list and no window."""
    document = strict(to_json([]))
    contract.validate(document)
    assert document["window"] == {"start": None, "end": None, "scrapes": 0}


def test_several_engines_share_the_outer_window(samples: dict[str, EngineDiagnosis]) -> None:
    """The outer window spans all engines' windows and counts all their pages."""
    later = replace(samples["healthy"], start=samples["healthy"].start + 5, end=samples["healthy"].end + 5)
    report = to_json([samples["load"], later])
    assert report["window"] == {"start": "2026-07-30T03:00:00.000Z", "end": "2026-07-30T03:00:25.000Z", "scrapes": 42}


def test_the_schema_allows_new_fields_and_refuses_missing_ones(samples: dict[str, EngineDiagnosis], contract: Any) -> None:
    """A later release may add a field; leaving one out breaks the contract."""
    document = strict(to_json([samples["load"]]))
    grown = deepcopy(document)
    grown["engines"][0]["verdict"]["new_field"] = 1
    contract.validate(grown)
    del document["engines"][0]["verdict"]["class"]
    with pytest.raises(jsonschema.ValidationError, match="class"):
        contract.validate(document)
