"""Whether ranks share a clock, from step times whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from collector import signals
from collector.engines.vllm_clock import tell
from collector.model import Clock, Engine, Window

COLUMNS = 12


def window(steps: np.ndarray) -> Window:
    """(R, T) seconds per step; NaN where a rank had no requests."""
    values = {signals.DECODE_TIME: np.where(np.isfinite(steps), 1.0, 0.0), signals.DECODE_STEPS: np.nan_to_num(1.0 / steps)}
    return Window(Engine("e", "vllm"), np.arange(steps.shape[1] + 1.0), tuple(range(len(steps))), values, 2)


def walk(seed: int, ranks: int, spread: float, columns: int = COLUMNS) -> np.ndarray:
    return 0.04 * np.exp(spread * np.random.default_rng(seed).standard_normal((ranks, columns)))


@pytest.mark.parametrize("seed", range(10))
def test_step_times_that_move_as_one_are_one_clocks(seed: int) -> None:
    """A common movement of 5 %, a rank's own scatter of 0.5 %, and a level 4 % apart, as 1.02 to 1.05 was measured at loads of 6 to 1."""
    common = walk(seed, 1, 0.05)
    own = np.exp(0.005 * np.random.default_rng(seed + 100).standard_normal((4, COLUMNS)))
    assert tell(window(common * own * np.array([[1.0], [1.04], [1.0], [1.02]]))) is Clock.FORWARD


@pytest.mark.parametrize("seed", range(10))
def test_step_times_that_move_each_for_itself_are_no_clocks(seed: int) -> None:
    """Four ranks with a scatter of 5 % each."""
    assert tell(window(walk(seed, 4, 0.05, 20))) is Clock.NONE


def test_a_rank_far_from_the_others_has_its_own_clock() -> None:
    """13.1 and 84.0 ms, as measured, without any movement; a lockstep would have levelled them."""
    assert tell(window(np.repeat([[0.0131], [0.0840]], COLUMNS, axis=1))) is Clock.NONE


def test_a_rank_far_from_the_others_for_a_while_proves_nothing() -> None:
    """Requests that came at different times: half of the intervals are not most of them."""
    steps = np.full((2, COLUMNS), 0.04)
    steps[1, : COLUMNS // 2] = 0.08
    assert tell(window(steps)) is not Clock.FORWARD


@pytest.mark.parametrize(
    "steps",
    [
        np.full((4, COLUMNS), 0.04),
        walk(1, 1, 0.05).repeat(4, axis=0)[:, :5],
        np.where([[True], [False]], walk(1, 2, 0.05), np.nan),
        np.full((4, COLUMNS), np.nan),
    ],
    ids=["nothing moves", "too few intervals", "one rank works", "nobody works"],
)
def test_otherwise_it_is_unknown(steps: np.ndarray) -> None:
    """Level step times are what a lockstep shows, and what equal dense ranks show."""
    assert tell(window(steps)) is Clock.UNKNOWN
