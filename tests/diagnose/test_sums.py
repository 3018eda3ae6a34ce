"""Sums over what was observed, against numpy's own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from collector.model import FloatArray
from diagnose import sums

TABLES = arrays(
    np.float64,
    st.tuples(st.integers(1, 9), st.integers(1, 20)),
    elements=st.one_of(st.just(float("nan")), st.floats(-1e12, 1e12)),
)


@given(TABLES)
def test_sums_leave_out_what_was_not_observed(table: FloatArray) -> None:
    """A sum over nothing is 0, as numpy's nansum has it."""
    assert sums.total(table) == pytest.approx(np.nansum(table), rel=1e-9, abs=1e-3)
    assert sums.by_column(table) == pytest.approx(np.nansum(table, axis=0), rel=1e-9, abs=1e-3)
    assert not np.isnan(sums.zeroed(table)).any()


@given(TABLES, st.integers(1, 20))
def test_parts_cover_all_columns_in_order_and_their_means_are_of_what_was_observed(table: FloatArray, parts: int) -> None:
    """Each part's mean is numpy's nanmean of consecutive columns, and NaN for a part in which a row was never observed."""
    columns = table.shape[1]
    parts = min(parts, columns)
    found = sums.by_part(table, parts)
    cuts = [k * columns // parts for k in range(parts)] + [columns]
    assert found.shape == (len(table), parts)
    for k, (start, stop) in enumerate(pairwise(cuts)):
        for row, mean in enumerate(found[:, k]):
            seen = table[row, start:stop][~np.isnan(table[row, start:stop])]
            assert mean == pytest.approx(seen.mean() if seen.size else float("nan"), rel=1e-9, abs=1e-3, nan_ok=True)


def test_nan_may_stand_for_another_value() -> None:
    """`otherwise` takes the place of NaN alone."""
    assert sums.zeroed(np.array([1.0, np.nan, np.inf]), -1.0).tolist() == [1.0, -1.0, np.inf]
