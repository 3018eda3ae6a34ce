"""What a window says of its signals: which were observed, their means, and what is computed once for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.model import Engine, FloatArray, Window, once_a_window

NAN = float("nan")


def window(edges: list[float], ranks: int = 2, **values: list[list[float]]) -> Window:
    """A window of signals given row by row."""
    return Window(Engine("e", "sglang"), np.array(edges), tuple(range(ranks)), {k: np.array(v) for k, v in values.items()}, 1)


def test_a_mean_weighs_intervals_by_their_length_and_leaves_out_what_was_not_observed() -> None:
    """(1 x 1 s + 4 x 3 s) / 4 s; the second rank's one second alone; NaN for a rank never seen."""
    seen = window([0.0, 1.0, 4.0], 3, tokens=[[1.0, 4.0], [7.0, NAN], [NAN, NAN]])
    assert seen.mean("tokens").tolist() == pytest.approx([3.25, 7.0, NAN], nan_ok=True)


def test_a_signal_without_a_value_was_never_observed() -> None:
    """Neither is one that is no key; zero is a value, infinity is none."""
    seen = window([0.0, 1.0], zero=[[0.0], [NAN]], nothing=[[NAN], [NAN]], wild=[[np.inf], [NAN]])
    assert seen.has("zero")
    assert not seen.has("zero", "nothing")
    assert seen.missing("wild", "zero", "nothing", "unheard_of") == ("wild", "nothing", "unheard_of")
    assert seen.has_any("nothing", "zero")
    assert not seen.has_any("nothing", "unheard_of")
    assert np.isnan(seen.mean("unheard_of")).all()


def test_signals_of_the_whole_engine_keep_their_one_row() -> None:
    """A signal of one row beside signals of two."""
    seen = window([0.0, 1.0, 2.0], whole=[[2.0, 4.0]], each=[[1.0, 1.0], [5.0, 7.0]])
    assert seen.mean("whole").tolist() == [3.0]
    assert seen.mean("each").tolist() == [1.0, 6.0]


def test_many_values_are_summed_up_piece_by_piece_to_the_same_means() -> None:
    """Three signals of 1.2 million values each, more than are taken together."""
    rng = np.random.default_rng(3)
    values = {f"s{k}": rng.random((1200, 1000)) for k in range(3)}
    seen = Window(Engine("e", "sglang"), np.arange(1001.0), tuple(range(1200)), values, 1)
    for name, table in values.items():
        assert seen.mean(name) == pytest.approx(table.mean(axis=1))


@given(st.lists(st.one_of(st.just(NAN), st.floats(0.0, 1e9)), min_size=1, max_size=12))
def test_a_mean_lies_between_the_least_and_the_largest_value(values: list[float]) -> None:
    """Whatever was missed; NaN when everything was."""
    mean = window([float(k) for k in range(len(values) + 1)], 1, x=[values]).mean("x")[0]
    seen = [v for v in values if v == v]
    assert min(seen) * (1 - 1e-9) <= mean <= max(seen) * (1 + 1e-9) if seen else np.isnan(mean)


def test_what_is_asked_of_a_window_is_computed_once_for_each_question() -> None:
    """Once for each window and further argument, and nobody can write into what others are given."""
    asked = []

    @once_a_window
    def scaled(of: Window, factor: float = 1.0) -> FloatArray:
        asked.append(factor)
        return of.mean("x") * factor

    first, second = window([0.0, 1.0], 1, x=[[2.0]]), window([0.0, 1.0], 1, x=[[3.0]])
    assert [scaled(first)[0], scaled(first)[0], scaled(first, 2.0)[0], scaled(first, factor=2.0)[0], scaled(second)[0]] == [2, 2, 4, 4, 3]
    assert asked == [1.0, 2.0, 2.0, 1.0]  # by position and by name are two questions
    with pytest.raises(ValueError, match="read-only"):
        scaled(first)[0] = 9.0
