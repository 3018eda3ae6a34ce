"""When it began: planted steps are found, noise alone is not, and a past is cut where it turns bad."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diagnose import change
from diagnose.engine import diagnose


def _white(rng, count):
    return rng.standard_normal(count)


def _heavy(rng, count):
    return rng.standard_t(3, count)


def _skewed(rng, count):
    return np.exp(rng.standard_normal(count)) - 1.0


def _dependent(rng, count):
    out = np.zeros(count)
    for t in range(1, count):
        out[t] = 0.6 * out[t - 1] + rng.standard_normal()
    return out


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(20, 300),
    place=st.floats(0.3, 0.7),
    rise=st.floats(0.3, 3.0),
    up=st.booleans(),
    gaps=st.booleans(),
)
def test_a_planted_step_is_found_within_two_intervals(seed, count, place, rise, up, gaps):
    """A step of 30 % or more in scatter of 2 %, up or down, with or without unobserved intervals: its place within +-2, its sign right.
    (Twenty values can feign a dependence in time that hides a lesser one.)"""
    rng = np.random.default_rng(seed)
    at = int(place * count)
    low, high = 0.040, 0.040 * (1.0 + rise)
    series = np.where(np.arange(count) < at, *((low, high) if up else (high, low))) * (1.0 + 0.02 * rng.standard_normal(count))
    if gaps:
        series[rng.random(count) < 0.1] = np.nan
        assume(min(np.isfinite(series[:at]).sum(), np.isfinite(series[at:]).sum()) >= change.LEAST)
    found = change.find(series)
    assert found is not None
    assert abs(found.at - at) <= 2 + (int(np.isnan(series[at : at + 3]).sum()) if gaps else 0)
    assert (found.shift > 0) == up


@pytest.mark.parametrize("count", [10, 20, 60, 300])
@pytest.mark.parametrize(("noise", "most"), [(_white, 8), (_heavy, 8), (_skewed, 8), (_dependent, 20)])
def test_noise_alone_is_seldom_a_change(noise, most, count):
    """Scatter of 30 % without a step, of four kinds: of 400 series at most 8 pass, 20 of dependent ones, the rates that CLEAR states."""
    found = sum(change.find(1.0 + 0.3 * noise(np.random.default_rng(seed), count)) is not None for seed in range(1000, 1400))
    assert found <= most


def test_a_shift_below_a_tenth_does_not_count():
    """8 % on clean values stands out of the scatter, and is still no change that anyone acts on."""
    series = np.where(np.arange(60) < 30, 1.0, 1.08) + 1e-4 * np.random.default_rng(0).standard_normal(60)
    assert change.find(series) is None


@pytest.mark.parametrize("values", [[], [1.0] * 9, [np.nan] * 50, [1.0] * 50, [0.0] * 50])
def test_what_is_short_unseen_or_constant_has_no_change(values):
    """No scatter of its own on either side, or nothing at all: no change, and no error."""
    assert change.find(np.array(values, dtype=np.float64)) is None


def test_one_pause_is_no_change():
    """A single interval at 20 times the level does not move the level."""
    series = 0.040 * (1.0 + 0.02 * np.random.default_rng(3).standard_normal(60))
    series[25] *= 20.0
    assert change.find(series) is None


def joined(first, second):
    """Two windows of one plant as one."""
    values = {name: np.concatenate([first.values[name], second.values[name]], axis=1) for name in first.values}
    count = len(first.edges) + len(second.edges) - 2
    return replace(first, values=values, edges=first.edges[0] + np.arange(count + 1, dtype=np.float64))


@pytest.mark.parametrize("cause", ["host_cpu_starved", "slow_rank", "context_length_skew", "long_prefill", "whole_group_slow"])
def test_a_verdict_says_since_when(cause, scenes):
    """Twenty healthy seconds, then forty of a fault: the verdict is dated to the second it began, give or take two."""
    healthy, sick = scenes["healthy"], scenes[cause]
    window = joined(replace(healthy, seconds=20).window(), replace(sick, seconds=40).window())
    verdict = diagnose(window, healthy.window()).verdict
    assert verdict.cause == cause
    assert verdict.since == pytest.approx(window.start + 20.0, abs=2.0)


@pytest.mark.parametrize("cause", ["healthy", "host_cpu_starved", "context_length_skew", "whole_group_slow"])
def test_what_was_there_from_the_start_has_no_date(cause, scenes):
    """A fault as old as the window, and a healthy window, are not dated."""
    assert diagnose(replace(scenes[cause], seconds=40).window(), scenes["healthy"].window()).verdict.since is None


def test_a_past_is_used_without_its_sick_part(scenes):
    """A past whose second half is as slow as now still shows that the group is slow: the half is left out."""
    healthy, sick = scenes["healthy"], scenes["whole_group_slow"]
    past = joined(replace(healthy, seconds=30).window(), replace(sick, seconds=90).window())
    assert change.calm_part(past).end == pytest.approx(past.start + 30.0, abs=2.0)
    assert diagnose(sick.window(), past).verdict.cause == "whole_group_slow"


def test_a_past_that_slows_with_its_load_is_kept_whole(plant):
    """Twice the requests from the middle on, and longer steps: that is load, not a fault."""
    past = joined(plant(seconds=30).window(), plant(seconds=30, running=(16.0,) * 64, base=0.050).window())
    assert change.calm_part(past) is past
