"""Whatever the numbers, the analyser answers, within bounds."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collector.model import Clock, Engine, Facts, Window
from collector.signals import CATALOGUE, Scope
from diagnose.engine import diagnose

VALUES = st.one_of(st.floats(0, 1e12), st.just(float("nan")), st.floats(0, 1.0), st.just(0.0))


@st.composite
def windows(draw) -> Window:
    ranks, columns = draw(st.integers(1, 5)), draw(st.integers(1, 14))
    names = draw(st.lists(st.sampled_from(sorted(CATALOGUE)), unique=True))
    shape = {n: (ranks if CATALOGUE[n].scope is Scope.RANK else 1, columns) for n in names}
    values = {n: draw(hnp.arrays(np.float64, s, elements=VALUES)) for n, s in shape.items()}
    facts = Facts(accelerator=draw(st.sampled_from([None, "NVIDIA H20", "?"])), kv_bytes_per_token=draw(st.sampled_from([None, 0.0, 45e3])))
    kind, clock = draw(st.sampled_from([("sglang", Clock.EXCHANGE), *(("vllm", c) for c in Clock if c is not Clock.EXCHANGE)]))
    return Window(Engine("e", kind, facts, clock), np.arange(columns + 1, dtype=np.float64), tuple(range(ranks)), values, columns)


@settings(max_examples=300, deadline=None)
@given(windows(), st.one_of(st.none(), windows()))
def test_any_window_gets_an_answer_within_bounds(window, baseline):
    """No window makes a rule raise; shares and confidences lie in 0..1; named ranks exist."""
    result = diagnose(window, baseline)
    failed = [o for o in result.outcomes if "the rule failed" in getattr(o.outcome, "why", "")]
    assert not failed
    verdict = result.verdict
    assert 0.0 <= verdict.confidence <= 1.0
    assert set(verdict.ranks) <= set(window.ranks)
    if verdict.share is not None:
        assert all(0.0 <= s <= 1.0 and math.isfinite(s) for s in (verdict.share.mid, verdict.share.high))
    if verdict.lost_time.share is not None:
        assert 0.0 <= verdict.lost_time.share <= 1.0
