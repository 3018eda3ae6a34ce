"""The step time at its load, from past and window together: what is load's, what is not, and what the data leave open."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import signals
from collector.model import Engine, Facts, Window
from diagnose import lockstep, over_past, step_model
from diagnose.case import Case

BASE, TOKEN = 0.040, 20e-6  # seconds of a step, and of each of the group's tokens in it
PROMPT = 0.030  # seconds that a step takes more when a prompt is in it


def window(tokens: np.ndarray, touched: np.ndarray | float = 0.0, extra: float = 0.0, *, timer: bool = True) -> Window:
    """Intervals of a second in which the group's steps hold `tokens` each, `touched` of them with a prompt, and take `extra` seconds more;
    four ranks, rank 0 with all the prompts."""
    tokens = np.asarray(tokens, dtype=np.float64)
    touched = np.broadcast_to(touched, tokens.shape)
    rate = 1.0 / (BASE + TOKEN * tokens + PROMPT * touched + extra)
    share = np.vstack([touched, *[np.zeros_like(touched)] * 3])  # of its steps in which a rank prefills
    eager = np.vstack([np.zeros_like(touched), *[touched] * 3]) * rate
    values = {
        signals.STEPS_ACTIVE: np.tile(rate, (4, 1)),
        signals.STEPS_IDLE: np.zeros((4, tokens.size)),
        signals.EAGER_STEPS: eager,
        signals.GRAPH_STEPS: (1.0 - share) * rate - eager,
        signals.ATTENTION_TOKENS: np.tile(tokens * rate / 4, (4, 1)),
        signals.ATTENTION_PAIRS: np.zeros((4, tokens.size)),
        signals.RESIDENT_TOKENS: np.zeros((4, tokens.size)),
        signals.RUNNING: np.ones((4, tokens.size)),
        signals.WAITING: np.zeros((4, tokens.size)),
    }
    if timer:
        values[signals.FORWARD_TIME] = np.ones((4, tokens.size))
    engine = Engine("http://engine:30000", "sglang", Facts())
    return Window(engine, np.arange(tokens.size + 1, dtype=np.float64), tuple(range(4)), values, tokens.size)


VARIED = np.array([100.0, 400.0, 150.0, 900.0, 300.0, 700.0, 200.0, 500.0, 120.0, 600.0])


@pytest.mark.parametrize("timer", [True, False])
def test_a_load_three_times_the_past_is_no_excess(timer):
    """Steps of three times the tokens take as long as the past's prices say: nothing is left, and the rise is all the load's."""
    past, now = window(VARIED, timer=timer), window(3.0 * VARIED[:5], timer=timer)
    found = step_model.beyond(now, past, 0.0)
    assert found is not None
    assert abs(found.share) < 0.01
    assert found.by_load > 0.1
    assert found.timed is timer


def test_what_load_does_not_explain_is_left():
    """5 ms more in each step at another load: their share of the mean step, by arithmetic."""
    past, now = window(VARIED), window(VARIED[:5] + 300.0, extra=0.005)
    found = step_model.beyond(now, past, 0.0)
    assert found is not None
    steps = lockstep.median(now.get(signals.STEPS_ACTIVE).mean(axis=1))
    assert found.share == pytest.approx(0.005 * steps, abs=0.01)
    assert found.share - step_model.ERRORS * found.error > 0.0


def test_prompts_in_the_steps_are_load():
    """Steps with a prompt take 30 ms more; a window with far more of them is explained by the past's few."""
    past = window(VARIED, np.linspace(0.0, 0.3, VARIED.size))
    found = step_model.beyond(window(VARIED[:5], 0.9), past, 0.0)
    assert found is not None
    assert abs(found.share) < 0.03
    assert found.by_load > 0.2


def test_a_load_whose_price_was_never_seen_leaves_it_open():
    """A past and a window of steady load, twice as many tokens, steps a fifth longer: load or not cannot be told, and the range says so."""
    past = window(np.full(10, 400.0))
    now = window(np.full(5, 800.0), extra=0.004)
    found = step_model.beyond(now, past, 0.0)
    assert found is not None
    assert found.share - step_model.ERRORS * found.error < 0.0 < found.share + step_model.ERRORS * found.error
    assert found.error > 0.1


def test_the_busiest_ranks_pairs_are_priced_by_the_card():
    """80,000 pairs more on the busiest rank at 100 ns each are 8 ms of a step, and no excess."""
    past, now = window(VARIED), window(VARIED[:5], extra=0.008)
    pairs = np.zeros((4, 5))
    pairs[2] = 80_000.0
    rate = now.get(signals.STEPS_ACTIVE)
    now = replace(now, values={**now.values, signals.RESIDENT_TOKENS: pairs, signals.ATTENTION_PAIRS: pairs * rate})
    priced, free = step_model.beyond(now, past, 100e-9), step_model.beyond(now, past, 0.0)
    assert priced is not None
    assert free is not None
    assert abs(priced.share) < 0.02
    assert free.share > 0.05


@pytest.mark.parametrize("signal", [signals.STEPS_ACTIVE, signals.ATTENTION_TOKENS])
def test_without_steps_or_tokens_nothing_is_said(signal):
    past, now = window(VARIED), window(VARIED[:5])
    assert step_model.beyond(now.without(signal), past, 0.0) is None
    assert step_model.beyond(now, past.without(signal), 0.0) is None


def test_a_few_intervals_are_no_past():
    assert step_model.beyond(window(VARIED), window(VARIED[: step_model.FEWEST - 1]), 0.0) is None


def test_a_timer_on_one_side_alone_compares_nothing():
    """Device time and wall time are not the same quantity."""
    assert step_model.beyond(window(VARIED), window(VARIED, timer=False), 0.0) is None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1.0, 5000.0), min_size=6, max_size=20),
    st.lists(st.floats(1.0, 5000.0), min_size=3, max_size=8),
    st.floats(0.0, 0.05),
)
def test_the_range_holds_the_truth_whatever_the_load(before, after, extra):
    """Any loads, any slowdown: what was added lies within the stated range and two points, and all figures are finite."""
    now = window(np.array(after), extra=extra)
    found = step_model.beyond(now, window(np.array(before)), 0.0)
    assert found is not None
    assert np.isfinite((found.share, found.error, found.by_load)).all()
    truth = extra * float(now.get(signals.STEPS_ACTIVE)[0].mean())
    assert abs(found.share - truth) <= step_model.ERRORS * found.error + 0.02


def test_hosts_late_alike_are_beyond_the_past_though_no_device_is(plant):
    """All eight hosts 60 ms late: devices run dry, nobody waits, and the rise is the hosts'."""
    found = Case(plant(delay=dict.fromkeys(range(8), 0.060)).window(), plant().window()).excess
    assert isinstance(found, over_past.Excess)
    assert found.share.mid > 0.3
