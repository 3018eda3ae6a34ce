"""Hand-made diagnoses, one per kind of verdict, that every report test reads."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collector import signals
from collector.model import Engine, Facts, FloatArray, Problem, Window
from diagnose.model import (
    Class,
    EngineDiagnosis,
    Evidence,
    Finding,
    Healthy,
    LostTime,
    Missing,
    NoData,
    RankRow,
    RuledOut,
    RuleOutcome,
    Severity,
    Share,
    Verdict,
)

START = 1_785_380_400.0  # 2026-07-30 03:00:00 UTC

PAIRS = Evidence(
    signal="attention_pairs",
    what="rank 0 reads 229,376 attention pairs in each step, the median rank 32,768",
    observed=229_376.0,
    expected=32_768.0,
    unit="pairs/step",
    rank=0,
    threshold=49_152.0,
    promql=(
        'rate(sglang:dp_attention_pairs_total{kind="scheduled",dp_rank="0"}[20s])\n'
        '  / rate(sglang:dp_attention_steps_total{dp_rank="0"}[20s])'
    ),
)
WAITS = Evidence(
    signal="sync_wait",
    what="the others wait 4.10 ms per step where rank 5 waits 0.31 ms",
    observed=0.00031,
    expected=0.0041,
    unit="s/step",
    rank=5,
    promql="rate(sglang:dp_attention_sync_wait_seconds_sum[20s])",
)


def rows(culprit: int | None = None, waits: bool = True) -> tuple[RankRow, ...]:
    return tuple(
        RankRow(
            rank=r,
            running=4.0,
            waiting=0.0,
            tokens_per_step=4.0,
            pairs_per_step=229_376.0 if r == 0 else 32_768.0,
            wait_per_step=(0.00031 if r == 5 else 0.0041) if waits else None,
            lateness=(0.00379 if r == 5 else 0.0) if waits else None,
            scheduler_cpu=0.42,
            snapshot_age=0.2,
            culprit=r == culprit,
        )
        for r in range(8)
    )


LOAD = Verdict(
    klass=Class.LOAD,
    cause="context_length_skew",
    ranks=(0,),
    confidence=0.94,
    summary="Rank 0 carries 7.0 times the attention pairs of the median rank; every step waits for it.",
    severity=Severity.PAGE,
    share=Share(0.27, 0.262, 0.275),
    lost_time=LostTime(0.31, {"unexplained": 0.04, "context_length_skew": 0.27}),
    evidence=(PAIRS,),
    ruled_out=(
        RuledOut(Class.SINGLE_POINT, "rank 0 is no slower per pair than its peers"),
        RuledOut(Class.STRUCTURAL, "experts are level: balancedness 0.93"),
    ),
    missing=(
        Missing("expert_load", "start SGLang with --expert-distribution-recorder-mode stat", "names the card that holds the hot experts"),
    ),
    remedy="Let the router count tokens instead of requests: --load-balance-method total_tokens.",
    runbook="slowrank explain context_length_skew",
)
SINGLE = replace(
    LOAD,
    klass=Class.SINGLE_POINT,
    cause="host_cpu_starved",
    ranks=(5,),
    confidence=0.81,
    summary="Rank 5's scheduler gets its CPU late.",
    severity=Severity.TICKET,
    share=Share(0.12, 0.08, 0.19),
    lost_time=LostTime(0.15, {"host_cpu_starved": 0.12, "unexplained": 0.03}),
    evidence=(WAITS,),
    remedy="Unpin the rank's scheduler or move the neighbour that takes its core.",
    runbook="slowrank explain host_cpu_starved",
    also=(LOAD,),
)
STRUCTURAL = replace(
    LOAD,
    klass=Class.STRUCTURAL,
    cause="prefill_drags_decode",
    ranks=(),
    confidence=0.55,
    summary="Prefill holds the group for a fifth of the time.",
    severity=Severity.NOTE,
    share=Share(0.2, 0.2, 0.2),
    lost_time=LostTime(None),
    evidence=(),
    ruled_out=(),
    missing=(),
    remedy="Separate prefill from decode.",
    runbook="",
    would_tell="per-rank expert load, or the same window with long prompts held back",
)
OUTSIDE = replace(
    STRUCTURAL,
    klass=Class.OUTSIDE,
    cause="outside_the_ranks",
    confidence=0.9,
    summary="All ranks step as fast as before while requests take longer.",
    remedy="Look at the tokenizer and the client.",
    would_tell="",
)
HEALTHY = replace(
    LOAD,
    klass=Class.HEALTHY,
    cause=None,
    ranks=(),
    confidence=0.97,
    summary="The ranks finish their steps within 2% of one another.",
    severity=Severity.NOTE,
    share=None,
    lost_time=LostTime(0.02),
    evidence=(),
    ruled_out=(),
    missing=(),
    remedy="",
    runbook="",
)
INSUFFICIENT = replace(
    HEALTHY,
    klass=Class.INSUFFICIENT,
    confidence=0.0,
    summary="The page holds request counts only.",
    lost_time=LostTime(None),
    missing=(
        Missing("sync_wait", "start SGLang with SGLANG_ENABLE_METRICS_DP_ATTENTION=1", "half of the host wait"),
        Missing("recv_wait", "start SGLang with --enable-metrics", "the other half"),
        Missing("steps_active", "start SGLang with SGLANG_ENABLE_METRICS_DP_ATTENTION=1", "the group's step count"),
    ),
    would_tell="one minute of /metrics with the flag below",
)
GROUP_SLOW = replace(
    INSUFFICIENT,
    cause="whole_group_slow",
    confidence=0.72,
    severity=Severity.TICKET,
    summary="steps take 61.0 ms instead of 42.0 ms at the same load; no rank can be named",
    share=Share(0.31, 0.25, 0.35),
    lost_time=LostTime(0.33, {"whole_group_slow": 0.31, "unexplained": 0.02}),
    evidence=(Evidence("step_time", "a step takes 61.0 ms, it took 42.0 ms", 0.061, 0.042, "s", threshold=0.0467),),
    remedy="Read the cards' own evidence: clocks and throttle reasons.",
    runbook="slowrank explain whole_group_slow",
    would_tell="clocks and throttle reasons of the group's cards",
)
OUTCOMES = (
    RuleOutcome(
        "context_length_skew", Finding((0,), Share(0.27, 0.26, 0.28), 0.94, "Rank 0 is long.", (PAIRS,), weakened_by=("sync_wait",))
    ),
    RuleOutcome("host_cpu_starved", Healthy("lateness 0.1 ms is within the spread of healthy ranks", (WAITS,))),
    RuleOutcome("gpu_throttled", NoData(("sm_clock", "throttle_reasons"), "no DCGM exporter was given")),
)


def diagnosis(verdict: Verdict, **changes: Any) -> EngineDiagnosis:
    made = EngineDiagnosis(
        engine=Engine(
            "http://host:30000", "sglang", Facts(version="0.5.23", model="GLM-5", role="unified", accelerator="H200", expected_ranks=8)
        ),
        start=START,
        end=START + 20.0,
        scrapes=21,
        ranks=rows(verdict.ranks[0] if verdict.ranks else None),
        step_time=0.0421,
        verdict=verdict,
        outcomes=OUTCOMES,
    )
    return replace(made, **changes)


SAMPLES = {
    "load": diagnosis(LOAD),
    "single_point_and_load": diagnosis(
        SINGLE,
        problems=(Problem("http://node1:30000/metrics", "no reply within 5 s, 3 of 4 times", "rank 6 and 7 are partly missing"),),
        notes=("the first 2 s were left out: a counter was reset",),
    ),
    "structural_no_rank": diagnosis(STRUCTURAL),
    "outside": diagnosis(OUTSIDE),
    "healthy": diagnosis(HEALTHY),
    "insufficient_group_slow": diagnosis(GROUP_SLOW),
    "insufficient": diagnosis(
        INSUFFICIENT,
        ranks=rows(waits=False)[:7],
        step_time=None,
        problems=(Problem("http://host:30000/metrics", "HTTP 404", "metrics are off"),),
    ),
}


@pytest.fixture(params=sorted(SAMPLES))
def sample(request: pytest.FixtureRequest) -> tuple[str, EngineDiagnosis]:
    """Each kind of verdict in turn: (name, diagnosis)."""
    return request.param, SAMPLES[request.param]


@pytest.fixture
def samples() -> dict[str, EngineDiagnosis]:
    """All kinds of verdict by name."""
    return dict(SAMPLES)


def make_window(ranks: int = 8, columns: int = 20, changes: Mapping[str, float | FloatArray] | None = None) -> Window:
    """20 steps a second; rank 0 holds seven times the pairs, rank 5 waits 0.5 ms where the others wait 4 ms."""
    shape = (ranks, columns)
    pairs, wait = np.full(shape, 32_768.0), np.full(shape, 0.004)
    pairs[0] *= 7.0
    wait[min(5, ranks - 1)] = 0.0005
    values: dict[str, FloatArray] = {
        signals.STEPS_ACTIVE: np.full(shape, 20.0),
        signals.STEPS_IDLE: np.zeros(shape),
        signals.DECODE_STEPS: np.full(shape, 20.0),
        signals.DECODE_TIME: np.ones(shape),
        signals.RESIDENT_TOKENS: pairs,
        signals.ATTENTION_TOKENS: np.full(shape, 4.0 * 20.0),
        signals.RECV_WAIT: wait * 20.0 / 4,
        signals.SYNC_WAIT: wait * 20.0 * 3 / 4,
        signals.RUNNING: np.full(shape, 4.0),
    }
    values |= {name: np.broadcast_to(np.asarray(value, dtype=np.float64), shape) for name, value in (changes or {}).items()}
    facts = Facts(version="0.5.23", model="GLM-5", expected_ranks=ranks)
    edges = 1_785_380_400.0 + np.arange(columns + 1.0)
    return Window(Engine("http://host:30000", "sglang", facts), edges, tuple(range(ranks)), values, 21)


@pytest.fixture
def window() -> Callable[..., Window]:
    """The builder of a window to draw."""
    return make_window
