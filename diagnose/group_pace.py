"""The whole group against its own past on engines that measure no wait: by step time and load alone. Pure."""

from __future__ import annotations

import numpy as np

from collector import promql, signals
from collector.model import Clock, Window
from diagnose import clocks, independent, lockstep, prompts, sums
from diagnose.case import Case
from diagnose.confidence import confidence
from diagnose.model import Evidence, Finding, Healthy, NoData, Share
from diagnose.rules import Limits

NEEDS = (signals.DECODE_STEPS, signals.DECODE_TIME, signals.ATTENTION_TOKENS, signals.PREFILL_TOKENS)


def growth(window: Window, past: Window) -> float | None:
    """How many times the load of a step is what it was: the largest of its tokens, prompt tokens and the busiest rank's KV tokens; None
    when tokens were not observed. Step time grows at most as much (`independent`)."""
    now, before = _per_step(window, signals.ATTENTION_TOKENS), _per_step(past, signals.ATTENTION_TOKENS)
    if now is None or before is None or before <= lockstep.LEAST_RATE:
        return None
    prompt, prompt_before = (sums.total(prompts.computed(w)) * (lockstep.cadence(w) or 0.0) for w in (window, past))
    spare = independent.FLOOR * before
    ratios = [now / before, (prompt + spare) / (prompt_before + spare)]
    for name in (signals.RESIDENT_TOKENS, signals.KV_USAGE):
        held = [w.mean(name) for w in (window, past)]
        if all(np.isfinite(h).any() for h in held):
            ratios.append(float(np.nanmax(held[0])) / max(float(np.nanmax(held[1])), lockstep.LEAST_RATE))
            break
    return max(ratios)


def _per_step(window: Window, signal: str) -> float | None:
    """What all ranks together do of a signal in one step's time."""
    values, step = window.mean(signal), lockstep.cadence(window)
    return None if step is None or not np.isfinite(values).any() else sums.total(values) * step


def whole_group(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    """The answer of `whole_group_slow` where waits are not measured."""
    window, past = case.window, case.baseline
    if missing := window.missing(*NEEDS):
        return NoData(missing, "with these missing, more load could be behind a slow step")
    if past is None:
        return NoData((), "there is no healthy past of this engine to compare with")
    now, before, grown = case.step_time, lockstep.cadence(past), growth(window, past)
    if now is None or before is None or grown is None:
        return NoData((), "the engine's past does not hold what a comparison needs")
    if not case.long_enough:
        return NoData((), "the window is too short to show that the group stays slow")
    allowed = before * max(1.0, grown)
    sure, likely = 1.0 - allowed / now, 1.0 - before / now
    if likely < limit.share:
        return Healthy(f"a step takes {now * 1e3:.1f} ms against {before * 1e3:.1f} ms before")
    if sure < limit.share:
        return NoData((), f"a step takes {likely:.0%} longer than it did, with up to {grown:.1f} times the load: that may be all of it")
    met = window.engine.clock is not Clock.NONE
    weakened = window.missing(signals.RESIDENT_TOKENS)
    return Finding(
        ranks=(),
        share=Share(sure, sure, likely),
        confidence=confidence(sure, limit.share, missing=len(weakened) + 1),  # hot experts, lost graphs: never excluded on such an engine
        summary=f"steps take {now * 1e3:.1f} ms instead of {before * 1e3:.1f} ms, and load explains at most {allowed * 1e3:.1f} ms"
        + (f"; {clocks.SHARED}" if met else "; it is no single rank, all are slower"),
        evidence=(
            Evidence(
                signal="step_time",
                what=f"a step takes {now * 1e3:.1f} ms, it took {before * 1e3:.1f} ms, with at most {grown:.2f} times the load",
                observed=now,
                expected=before,
                unit="s",
                threshold=before / (1.0 - limit.share),
                promql=promql.VLLM_STEP_TIME,
            ),
        ),
        would_tell="run-queue delay and CPU of the worker processes on each node, clocks and throttle reasons of the cards, or a long"
        " prompt pinned to each rank in turn (header X-data-parallel-rank) at low load: the slow rank's takes longest to its first token",
        weakened_by=weakened,
    )
