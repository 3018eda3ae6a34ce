"""Confidence as a frequency: the fit on samples whose truth is known, and the table that is shipped."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from benchmarks.accuracy import calibrate, plan
from benchmarks.accuracy.judge import Judged, Truth
from benchmarks.accuracy.observe import Observed, Said
from benchmarks.accuracy.stats import wilson
from diagnose.confidence import calibrated, calibration
from diagnose.rules import load

SPEC = plan.Spec("single", "x", "chat", 0, (), 60.0, 130.0)
LOAD = Truth("context_length_skew", "load", frozenset({3}), 1.0, "metrics")


def run(raw: float, right: bool) -> Judged:
    cause = "context_length_skew" if right else "kv_pressure"
    return Judged(SPEC, (LOAD,), Observed(Said("load", cause, (3,), raw, raw, "ticket"), 1.3, frozenset()))


def sample(share: dict[float, float], n: int) -> list[Judged]:
    return [run(raw, i < right * n) for raw, right in share.items() for i in range(n)]


def test_the_fit_finds_the_frequencies():
    """Every rule counts alike: of one stated .6 and always wrong, of one stated .95 and always right, the table says 0 and 1 there."""
    found = calibrate.fit([run(0.6, right=False) for _ in range(400)] + [run(0.95, right=True) for _ in range(400)], "test", "0")
    assert np.interp(0.6, found.stated, found.calibrated) == pytest.approx(0.0, abs=0.03)
    assert np.interp(0.95, found.stated, found.calibrated) == pytest.approx(1.0, abs=0.03)
    assert found.verdicts == 800


def test_of_two_rules_each_counts_half():
    """Of 300 right verdicts of one rule and 100 wrong ones of another, all stated alike, half is right: rules count, not verdicts."""
    found = calibrate.fit([run(0.9, right=True) for _ in range(300)] + [run(0.9, right=False) for _ in range(100)], "test", "0")
    assert np.interp(0.9, found.stated, found.calibrated) == pytest.approx(0.5, abs=0.02)


def test_a_rule_that_is_wrong_more_often_is_believed_less():
    """All verdicts of one rule right, all of another wrong, stated alike: each has its own confidence, and a new rule the mean's."""
    found = calibrate.fit(sample({0.9: 0.5}, 200), "test", "0")
    good, bad, new = (found.of(0.9, rule) for rule in ("context_length_skew", "kv_pressure", "new"))
    assert good > 0.85
    assert bad < 0.15
    assert bad < new < good


def test_no_confidence_is_above_what_the_runs_prove():
    """Twenty right of twenty leave 21/22 to believe, a rule that never spoke even odds (the rule of succession)."""
    found = calibrate.fit(sample({0.97: 1.0}, 20), "test", "0")
    assert found.of(1.0, "context_length_skew") <= round(21 / 22, 3)
    assert found.of(1.0, "new") <= 0.5


def test_a_rule_that_is_never_wrong_says_nearly_what_was_seen():
    """Ninety right of ninety, fifty of them stated as sure as can be: within a few percent of 91/92."""
    found = calibrate.fit(sample({0.6: 0.8, 0.97: 1.0}, 50), "test", "0")
    assert 0.93 < found.of(0.97, "context_length_skew") <= 91 / 92


def test_weaker_evidence_never_says_as_much():
    """Even when every verdict of the sample is right, what is stated higher is the surer."""
    found = calibrate.fit(sample({0.5: 1.0, 0.97: 1.0}, 50), "test", "0")
    sure = [found.of(stated, "context_length_skew") for stated in (0.2, 0.4, 0.6, 0.8, 0.97)]
    assert all(a < b for a, b in itertools.pairwise(sure))


def test_healthy_is_surer_the_fewer_faults_are_called_so():
    """With 100 of 100 calm windows and 0 of 100 faults called healthy: .963 / (.963 + .037) by Wilson's ends."""
    calm = [Judged(SPEC, (), Observed(Said("healthy", None, (), 0.9, 0.9, "note"), 1.0, frozenset()))] * 100
    found = calibrate.fit([*calm, *sample({0.9: 1.0}, 100)], "test", "0")
    assert found.healthy == pytest.approx(wilson(100, 100).low, abs=0.002)


def test_nothing_named_cannot_be_calibrated():
    """Without a verdict that names a cause there is no frequency; the error says what to do."""
    with pytest.raises(ValueError, match="more runs"):
        calibrate.fit([], "test", "0")


def test_the_shipped_table_is_one():
    """It rises from 0, stays below 1, says of how many runs it is, and how to make it again."""
    table = calibration()
    assert list(table.stated) == sorted(set(table.stated))
    assert all(a <= b for a, b in itertools.pairwise(table.calibrated))
    assert (table.stated[0], table.stated[-1]) == (0.0, 1.0)
    assert 0.0 < table.ceiling < 1.0
    assert all(0.0 < record.ceiling < 1.0 for record in table.rules.values())
    assert 0.0 < table.healthy < 1.0
    assert table.runs >= 100
    assert table.made_by.startswith("python -m benchmarks.accuracy")


def test_the_table_survives_storing():
    """What is written is what is read."""
    found = calibrate.fit(sample({0.6: 0.7}, 20), "test", "0")
    assert json.loads(calibrate.encoded(found))["verdicts"] == 20


@pytest.mark.parametrize("rule", [*load(), "a new one"])
def test_calibrated_rises_with_what_is_stated(rule):
    """Between the table's points too."""
    values = [calibrated(float(s), rule) for s in np.linspace(0.2, 0.97, 78)]
    assert all(a <= b for a, b in itertools.pairwise(values))
    assert values[0] < values[-1]
