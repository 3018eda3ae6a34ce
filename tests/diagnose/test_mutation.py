"""Delete any one signal from any window: the verdict weakens, it never turns into another."""

from __future__ import annotations

import pytest

from collector import signals
from diagnose.blind import UNTESTED
from diagnose.engine import diagnose
from diagnose.model import Class
from diagnose.rules import load
from tests.diagnose.conftest import as_stated

SCENES = ("healthy", *load())


@pytest.mark.parametrize("signal", sorted(signals.CATALOGUE))
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("past", [True, False], ids=["with-past", "no-past"])
def test_a_missing_signal_never_changes_the_class(scene, signal, past, scenes):
    """The verdict without a signal has the same class with no more confidence, or is insufficient evidence; never another class.

    Without the front end's times the ranks alone are judged, and are well: healthy, with the confidence of what could not be looked at.
    """
    window, baseline = scenes[scene].window(), scenes["healthy"].window() if past else None
    whole = diagnose(window, baseline, sure=as_stated).verdict
    part = diagnose(window.without(signal), baseline.without(signal) if baseline else None, sure=as_stated).verdict
    if whole.klass is Class.OUTSIDE and part.klass is Class.HEALTHY:
        assert signal in load()[scene].needs
        assert part.confidence <= UNTESTED
    else:
        assert part.klass in (whole.klass, Class.INSUFFICIENT)
    if part.klass is whole.klass:
        assert part.confidence <= whole.confidence + 0.02  # a range may narrow by rounding when an input goes
        assert set(part.ranks) <= set(whole.ranks) or not part.ranks


@pytest.mark.parametrize("rule_id", sorted(load()))
def test_a_rule_without_one_of_its_needs_is_weaker_or_silent(rule_id, scenes):
    """For each signal that a rule says it needs: without it the rule does not fire, or fires with less confidence."""
    rule, window, past = load()[rule_id], scenes[rule_id].window(), scenes["healthy"].window()
    whole = diagnose(window, past, {rule_id: rule}, sure=as_stated).verdict
    assert whole.cause == rule_id
    for signal in rule.needs:
        part = diagnose(window.without(signal), past.without(signal), {rule_id: rule}, sure=as_stated).verdict
        assert part.cause is None or part.confidence < whole.confidence, signal
