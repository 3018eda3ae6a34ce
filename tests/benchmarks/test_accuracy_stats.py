"""The arithmetic of the accuracy figures, against values worked out by hand or known from tables."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.stats import Bin, bootstrap, ece, macro_f1, poisson_rate, quantile, reliability, wilson


def test_wilson_is_the_textbooks_interval():
    """50 of 100 has the interval .404 to .596; 10 of 10 begins at n/(n+z^2) and ends at 1; 0 of 10 mirrors it."""
    half, all_, none = wilson(50, 100), wilson(10, 10), wilson(0, 10)
    assert (round(half.low, 3), round(half.high, 3)) == (0.404, 0.596)
    assert all_.low == pytest.approx(10 / (10 + 1.96**2))
    assert all_.high == 1.0
    assert none.high == pytest.approx(1 - all_.low)


def test_no_runs_have_no_share():
    """Of nothing there is no share, and it prints so: 0 of 0 is not 0 %."""
    assert math.isnan(wilson(0, 0).value)
    assert str(wilson(0, 0)) == "- (no runs)"


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_lies_inside_its_interval(counts):
    """For any count, 0 <= low <= share <= high <= 1."""
    found = wilson(*counts)
    assert 0.0 <= found.low <= found.value + 1e-12
    assert found.value - 1e-12 <= found.high <= 1.0


def test_no_event_in_300_days_is_at_most_one_in_a_hundred():
    """The rule of three; and 4 events have the exact Poisson interval 1.09 to 10.24, which Byar's comes within a percent of."""
    assert poisson_rate(0, 300.0).high == pytest.approx(0.01)
    four = poisson_rate(4, 1.0)
    assert four.low == pytest.approx(1.09, rel=0.02)
    assert four.high == pytest.approx(10.24, rel=0.02)


def test_macro_f1_counts_classes_alike_and_abstention_as_a_miss():
    """load: 2 of 3 found, nothing else called so: F1 .8. single: 1 of 1, and once falsely: F1 2/3. Mean 11/15."""
    pairs = [
        ("load", "load"),
        ("load", "load"),
        ("load", "insufficient"),
        ("single", "single"),
        ("healthy", "single"),
        ("healthy", "healthy"),
    ]
    assert macro_f1(pairs[:4]) == pytest.approx((0.8 + 1.0) / 2)
    assert macro_f1(pairs) == pytest.approx((0.8 + 2 / 3 + 2 / 3) / 3)


def test_a_class_that_never_occurs_has_no_score():
    """Calling a load `outside` costs load, and brings no third class into the mean."""
    assert macro_f1([("load", "outside"), ("single", "single")]) == pytest.approx(0.5)


def test_the_bootstrap_repeats_itself_and_brackets():
    """The same values give the same interval; of equal values it has no width."""
    values = [0.0, 1.0] * 20
    one, two = (bootstrap(values, lambda v: sum(v) / len(v)) for _ in range(2))
    assert one == two
    assert one.low < 0.5 < one.high
    same = bootstrap([3.0] * 5, max)
    assert same.low == same.high == 3.0


def test_never_takes_part_in_a_quantile():
    """The median of 3, 5, never is 5; its 95th percentile is never."""
    assert quantile([math.inf, 3.0, 5.0], 0.5) == 5.0
    assert quantile([math.inf, 3.0, 5.0], 0.95) == math.inf


def test_calibration_error_of_a_known_sample():
    """Ten verdicts at .9 of which 7 are right, ten at .6 of which 6 are: (10 x .2 + 10 x 0) / 20 = .1."""
    bins = reliability([(0.9, i < 7) for i in range(10)] + [(0.6, i < 6) for i in range(10)])
    assert [(b.n, b.right.value) for b in bins] == [(10, 0.6), (10, 0.7)]
    assert ece(bins) == pytest.approx(0.1)


def test_full_confidence_is_in_the_last_bin():
    """1.0 belongs to the bin that ends there, and to no other."""
    (only,) = reliability([(1.0, True)])
    assert isinstance(only, Bin)
    assert (only.low, only.n) == (0.95, 1)
