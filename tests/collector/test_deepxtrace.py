"""DeepXTrace's dispatch log: the recorded case, its three shapes, and what a log in the wild looks like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import signals
from collector.deepxtrace import Matrix, attach, factors, parse
from collector.errors import SourceError
from collector.model import Engine, Window

CASE_01 = (Path(__file__).parents[1] / "field_cases" / "01-deepxtrace-ep16-slow-rank4.log").read_text()


def dump(waits: np.ndarray, stamp: str = "2026-11-30T08:00:00.000") -> str:
    return "".join(f"[{stamp}] rank={k} [{' '.join(str(int(w)) for w in row)}]\n" for k, row in enumerate(waits))


def window(ranks: int) -> Window:
    return Window(Engine("h:1", "sglang"), np.arange(4.0), tuple(range(ranks)), {}, 3)


def test_case_01_a_late_rank_is_a_high_column() -> None:
    """Rank 4 of 16 computes slowly: everybody waits for it, it waits for nobody, and the topology of two nodes shows nowhere."""
    matrix = parse(CASE_01, "log")
    assert matrix.since_start
    assert matrix.ended == "2025-09-15T16:28:53.687"
    assert matrix.waits[0, 4] == 7394516487
    waits, awaited = factors(matrix.waits)
    assert int(np.argmax(awaited)) == int(np.argmin(waits)) == 4
    assert awaited[4] > 5 > 1.5 > np.delete(awaited, 4).max()
    assert np.delete(waits, 4).max() < 1.3


def test_a_card_that_tokens_reach_late_is_a_high_row() -> None:
    """Rank 6 waits eight times as long for everybody: its row stands out by 8, no column does."""
    level = np.full((8, 8), 100.0)
    level[6] *= 8
    waits, awaited = factors(level)
    assert waits[6] == pytest.approx(8.0)
    assert np.delete(waits, 6) == pytest.approx(1.0)
    assert awaited == pytest.approx(1.0)


def test_one_slow_link_is_neither() -> None:
    """A single high cell moves no median over the partners."""
    level = np.full((8, 8), 100.0)
    level[2, 5] *= 50
    assert np.concatenate(factors(level)) == pytest.approx(1.0)


def test_the_last_two_dumps_are_the_present() -> None:
    """Sums since the start hide what began now; their difference does not."""
    first = np.full((4, 4), 1e9)
    second = first + np.where(np.arange(4)[:, None] == 3, 800.0, 100.0)
    matrix = parse(dump(first) + dump(second), "log")
    assert not matrix.since_start
    assert factors(matrix.waits)[0][3] == pytest.approx(8.0)


def test_sums_that_fell_are_a_new_job() -> None:
    """After a restart the last dump stands alone."""
    matrix = parse(dump(np.full((4, 4), 900.0)) + dump(np.full((4, 4), 100.0)), "log")
    assert matrix.since_start
    assert (matrix.waits == 100.0).all()


def test_a_dump_that_is_being_written_is_left_out() -> None:
    """Half a dump at either end of a log spoils neither the one before nor the one after."""
    whole = dump(np.full((4, 4), 100.0))
    torn = dump(np.full((4, 4), 300.0)).splitlines(keepends=True)
    for text in (whole + "".join(torn[:2]), "".join(torn[2:]) + whole, whole + "".join(torn)[:-12]):
        assert (parse(text, "log").waits == 100.0).all()


@pytest.mark.parametrize("text", ["", "hello", "[x] rank=0 [1 2]", "[2026-01-01T00:00:00] rank=0 [5]"])
def test_a_file_without_a_dump_is_refused_by_name(text: str) -> None:
    """The error says which file, and which log to give."""
    with pytest.raises(SourceError, match=r"my\.log: no complete dump"):
        parse(text, "my.log")


def test_the_factors_become_signals_of_the_window() -> None:
    """The same in every interval, and the log's own time is told, as its clock has no zone."""
    found = attach(window(16), parse(CASE_01, "a.log"), "a.log")
    assert found.mean(signals.DISPATCH_AWAITED)[4] == pytest.approx(5.23, abs=0.01)
    assert found.get(signals.DISPATCH_WAIT).shape == (16, 3)
    assert "the last at 2025-09-15T16:28:53.687" in str(found.problems[-1])


def test_a_log_of_another_engine_is_not_used() -> None:
    """Sixteen EP ranks say nothing of eight DP ranks."""
    found = attach(window(8), parse(CASE_01, "a.log"), "a.log")
    assert not found.values
    assert "16 EP ranks, and the engine shows 8 DP ranks" in str(found.problems[-1])


def test_too_few_on_a_node_have_no_measure() -> None:
    """Of two ranks neither is the other's measure, and a matrix of zeros measures nothing."""
    assert np.isnan(np.concatenate(factors(np.full((2, 2), 100.0)))).all()
    assert np.isnan(np.concatenate(factors(np.zeros((4, 4))))).all()


@given(st.text(alphabet="[]rank=0123456789 \nT:.-", max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but a matrix or a SourceError comes of a log."""
    try:
        matrix = parse(text, "log")
    except SourceError:
        return
    assert isinstance(matrix, Matrix)
    assert matrix.waits.shape[0] == matrix.waits.shape[1] >= 2
