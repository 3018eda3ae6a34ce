"""What counts as an effect: figures against the twin's, by arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.accuracy.effect import Facts, moved

TWIN = Facts(step=0.030, rate=33.0, tokens=4000.0, first=0.5, held=80.0, retracted=0.0, waits=(0.002, 0.003))


def test_the_same_figures_are_no_effect():
    """Nothing moved, also where nothing was seen in either."""
    assert moved(TWIN, TWIN) == 0.0
    unseen = Facts(None, None, 0.0, None, 0.0, 0.0, ())
    assert moved(unseen, unseen) == 0.0


@pytest.mark.parametrize(
    ("run", "share"),
    [
        (replace(TWIN, step=0.0303), 0.01),
        (replace(TWIN, rate=32.34), 0.02),
        (replace(TWIN, tokens=4400.0), 0.1),
        (replace(TWIN, first=0.4), 0.2),
        (replace(TWIN, held=88.0), 0.1),
        (replace(TWIN, waits=(0.002, 0.006)), 0.1),
        (replace(TWIN, retracted=0.1), math.inf),
        (replace(TWIN, first=None), math.inf),
        (replace(TWIN, step=None, rate=None, waits=()), math.inf),
    ],
)
def test_the_largest_change_counts_up_or_down(run, share):
    """Shares of the twin's figure; waits are held against its step; what the twin has none of is an effect however small."""
    assert moved(run, TWIN) == pytest.approx(share)


def test_a_rank_whose_wait_was_not_seen_is_left_out():
    """NaN on one rank hides no other's."""
    assert moved(replace(TWIN, waits=(math.nan, 0.006)), TWIN) == pytest.approx(0.1)
