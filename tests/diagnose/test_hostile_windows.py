"""Windows as no engine should make them: never an exception, never a rule that failed, never a culprit without evidence."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collector.model import Engine, Facts, Reading, Source, Window
from collector.signals import CATALOGUE, EAGER_STEPS, SNAPSHOT_AGE, Kind, Scope
from collector.store import Store
from diagnose.engine import diagnose
from diagnose.model import Class, EngineDiagnosis
from tests.diagnose.conftest import SCENES, Plant

BLAMED = (Class.SINGLE_POINT, Class.LOAD, Class.STRUCTURAL)
WILD = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, -1e300, float("inf"), float("-inf"), float("nan"), 5e-324]),
)


def sound(result: EngineDiagnosis, ranks: tuple[int, ...]) -> None:
    """What holds of every answer."""
    failed = [(o.rule, o.outcome) for o in result.outcomes if "the rule failed" in getattr(o.outcome, "why", "")]
    assert not failed
    for found in (result.verdict, *result.verdict.also):
        assert 0.0 <= found.confidence <= 1.0
        assert set(found.ranks) <= set(ranks)
        if found.share is not None:
            assert 0.0 <= found.share.low <= found.share.mid <= found.share.high <= 1.0
        if found.klass in BLAMED:
            assert found.evidence
            assert all(math.isfinite(item.observed) for item in found.evidence)
    lost = result.verdict.lost_time
    assert lost.share is None or 0.0 <= lost.share <= 1.0
    assert sum(lost.by_cause.values()) <= 1.001


def window_of(values: dict[str, np.ndarray], ranks: int, columns: int, facts: Facts | None = None) -> Window:
    edges = 1.8e9 + np.arange(columns + 1, dtype=np.float64)
    return Window(Engine("e", "sglang", facts or Facts()), edges, tuple(range(ranks)), values, columns)


@st.composite
def wild_windows(draw) -> Window:
    ranks, columns = draw(st.integers(0, 6)), draw(st.integers(0, 40))
    names = draw(st.lists(st.sampled_from(sorted(CATALOGUE)), unique=True))
    shape = {n: (ranks if CATALOGUE[n].scope is Scope.RANK else 1, columns) for n in names}
    values = {n: draw(hnp.arrays(np.float64, s, elements=WILD, fill=WILD)) for n, s in shape.items()}
    card = draw(st.sampled_from([None, "NVIDIA H20", "", "?"]))
    facts = Facts(accelerator=card, kv_bytes_per_token=draw(st.sampled_from([None, 0.0, -1.0, 45e3, math.inf, math.nan])))
    return window_of(values, ranks, columns, facts)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(wild_windows(), st.one_of(st.none(), wild_windows()))
def test_any_float_anywhere_gets_a_sound_answer(window, baseline):
    """NaN, infinities, negative rates and subnormals in any signal of any shape, with any such past."""
    sound(diagnose(window, baseline), window.ranks)


@st.composite
def damaged(draw) -> tuple[str, Window]:
    """A scene with damage done to it: columns, ranks and single values lost, zeroed, negated or multiplied."""
    scene = draw(st.sampled_from(sorted(SCENES)))
    window = replace(SCENES[scene], seconds=draw(st.integers(1, 40)), ranks=draw(st.integers(5, 9))).window()
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.1, 0.5, 0.9]))
    values = {}
    for name, found in window.values.items():
        hurt = found.copy()
        kind = draw(st.sampled_from(["none", "lost", "rank", "columns", "zero", "negative", "spike", "infinite"]))
        hit = rng.random(found.shape) < share
        if kind == "rank":
            hit = np.broadcast_to(rng.random((len(found), 1)) < share, found.shape)
        if kind == "columns":
            hit = np.broadcast_to(rng.random((1, found.shape[1])) < share, found.shape)
        match kind:
            case "lost" | "rank" | "columns":
                hurt[hit] = math.nan
            case "zero" | "infinite":
                hurt[hit] = 0.0 if kind == "zero" else math.inf
            case "negative" | "spike":
                hurt[hit] *= -1.0 if kind == "negative" else 1e6
        values[name] = hurt
    return scene, replace(window, values=values)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_damaged_scenes_get_a_sound_answer(case):
    """A real fault or none, seen through gaps, zeros, negative rates, spikes and infinities: an answer, with its evidence."""
    _, window = case
    sound(diagnose(window, SCENES["healthy"].window()), window.ranks)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lost=st.floats(0.3, 0.8), seconds=st.integers(10, 60))
def test_gaps_alone_blame_nobody(seed, lost, seconds):
    """A healthy group of which any part of any signal of any rank is missing: never a class to blame."""
    window = Plant(seconds=seconds).window()
    rng = np.random.default_rng(seed)
    values = {name: np.where(rng.random(found.shape) < lost, np.nan, found) for name, found in window.values.items()}
    result = diagnose(replace(window, values=values), Plant().window())
    sound(result, window.ranks)
    assert result.verdict.klass not in BLAMED


@pytest.mark.parametrize("scene", sorted(SCENES))
@pytest.mark.parametrize("what", ["one column", "one rank", "all equal", "all zero", "no edges apart"])
def test_degenerate_windows_blame_nobody(scene, what):
    """One sample, one rank, all ranks alike, nothing counted, no time: no rank can be told from another, so none is named as slow."""
    whole = SCENES[scene].window()
    match what:
        case "one column":
            window = replace(whole, edges=whole.edges[:2], values={n: v[:, :1] for n, v in whole.values.items()})
        case "one rank":
            window = replace(whole, ranks=(0,), values={n: v[:1] for n, v in whole.values.items()})
        case "all equal":
            window = replace(whole, values={n: np.broadcast_to(v.mean(axis=0), v.shape) for n, v in whole.values.items()})
        case "all zero":
            window = replace(whole, values={n: v * 0.0 for n, v in whole.values.items()})
        case _:
            window = replace(whole, edges=np.full(len(whole.edges), whole.edges[0]))
    result = diagnose(window)
    sound(result, window.ranks)
    alone = {"stuck_rank", "stale_ledger", "kv_pressure"}  # what a rank by itself can show: it stopped, or takes requests back
    if result.verdict.klass in (Class.SINGLE_POINT, Class.LOAD) and result.verdict.cause not in alone:
        assert result.verdict.ranks == ()


def fed(times: list[float], value, ranks: int = 4) -> Window:
    """What a store makes of readings at these times of arrival; `value(signal, k, rank)` is what the k-th page says."""
    store = Store("e", "sglang", depth_s=300)
    names = [n for n, s in CATALOGUE.items() if s.scope is Scope.RANK]
    for k, arrived in enumerate(times):
        values = {name: {rank: value(name, k, rank) for rank in range(ranks)} for name in names}
        store.feed(Reading("e", "n", Source.SGLANG_METRICS, arrived, dict.fromkeys(range(ranks), arrived), values))
    return store.window(-math.inf, math.inf)


def test_clock_steps_get_a_sound_answer():
    """The clock jumps an hour ahead, a day back and on again: pages of the past are refused, the rest answers."""
    times = [1000.0 + k + (3600.0 if k > 20 else 0.0) - (86_400.0 if 40 < k < 60 else 0.0) for k in range(120)]
    window = fed(times, lambda name, k, rank: 25.0 * k)
    sound(diagnose(window), window.ranks)


def test_resets_at_every_other_scrape_blame_nobody():
    """Counters that begin again with every second page, as two engines behind one URL show: no class is blamed."""
    levels = {name: 0.0 for name, signal in CATALOGUE.items() if signal.optional and signal.kind is Kind.GAUGE}  # no card says anything
    steady = {**levels, SNAPSHOT_AGE: 0.5, EAGER_STEPS: 0.0}
    window = fed([1000.0 + k for k in range(60)], lambda name, k, rank: steady.get(name, float(25 * (k % 2) + 1)))
    result = diagnose(window)
    sound(result, window.ranks)
    assert result.verdict.klass not in BLAMED
    assert any("fell" in str(problem) for problem in result.problems)


def test_ten_thousand_ranks_are_answered():
    """A late host among 10,000 ranks is found: nothing in a rule grows with the square of the ranks."""
    small = Plant(ranks=8, delay={5: 0.060}).window()
    values = {
        n: np.vstack([v, np.tile(v[np.arange(8) != 5], (1428, 1))[: 10_000 - 8]]) if len(v) == 8 else v for n, v in small.values.items()
    }
    window = replace(small, ranks=tuple(range(10_000)), values=values)
    result = diagnose(window, window)
    sound(result, window.ranks)
    assert (result.verdict.klass, result.verdict.ranks) == (Class.SINGLE_POINT, (5,))
