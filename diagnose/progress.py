"""Which ranks have stopped, by counters that stand still: for engines that publish no load snapshots. Pure.

vLLM writes its gauges when an engine core puts out a step, and at no other time: a stopped core leaves them as they were, its counters
stand, and /health goes on answering 200 (run on vLLM 0.32, dense and in lockstep).
"""

from __future__ import annotations

import numpy as np

from collector import promql, signals
from collector.model import Clock, FloatArray, Window
from diagnose import freshness, starvation, sums
from diagnose.case import Case
from diagnose.model import Evidence, Finding, Healthy, NoData, Share

STANDS = 15.0
"""Seconds without a token from which a rank with work has stopped: three scrapes at 5 s, and 180 steps of the longest that were measured
(84 ms, a slowed CPU run). A long prompt computed in parts puts out no token either, but moves the KV usage with each part."""

NEEDS = (signals.ATTENTION_TOKENS, signals.RUNNING)


def standing(window: Window) -> FloatArray:
    """(R,) seconds at the end of the window in which a rank put out no token and its KV usage did not move; NaN where tokens were not
    counted up to the end."""
    tokens, usage = window.get(signals.ATTENTION_TOKENS), window.get(signals.KV_USAGE)
    moved = sums.zeroed(tokens) > 0
    moved[:, 1:] |= sums.zeroed(np.diff(usage, axis=1)) != 0
    lengths = np.diff(window.edges)
    since = np.cumsum(lengths[::-1])[::-1]  # seconds from each interval's start to the end
    after = np.append(since[1:], 0.0)
    last = moved.shape[1] - 1 - np.argmax(moved[:, ::-1], axis=1)
    still = np.where(moved.any(axis=1), after[last], since[0])
    return np.where(np.isfinite(tokens[:, -1]), still, np.nan)


def stuck(case: Case) -> Finding | Healthy | NoData:
    """The answer of `stuck_rank` for an engine without load snapshots."""
    window = case.window
    if (missing := window.missing(*NEEDS)) or len(window.edges) < 2:
        return NoData(missing, "whether the ranks still put out tokens was not observed")
    still = standing(window)
    if not np.isfinite(still).any():
        return NoData((), "no tokens were counted at the end of the window: the last pages did not come")
    running, waiting = (sums.zeroed(freshness.last(window.get(name))) for name in (signals.RUNNING, signals.WAITING))
    work = running + waiting
    stopped = np.isfinite(still) & (still > 0) & (work > 0)
    if not stopped.any():
        return Healthy("every rank with requests put out tokens to the end of the window")
    if not (still[stopped] >= STANDS).any():
        longest = float(still[stopped].max())
        if window.end - window.start < STANDS:
            return NoData((), f"a rank with requests put out nothing for {longest:.0f} s: read for longer than {STANDS:.0f} s to tell")
        return Healthy(f"a rank with requests put out nothing for {longest:.0f} s, which a long prompt does too")
    rows = tuple(int(k) for k in np.flatnonzero(stopped & (sums.zeroed(still) >= STANDS)))
    going = np.isfinite(still) & (still == 0)
    # a rank that goes on while another stands shows that these two do not wait for each other
    named = bool(going.any()) or window.engine.clock is Clock.NONE or len(window.ranks) == 1
    signalled = starvation.stopped(case, rows)
    return _finding(case, rows, still, work, signalled, named=named or bool(signalled))


def _finding(
    case: Case, rows: tuple[int, ...], still: FloatArray, work: FloatArray, signalled: dict[int, starvation.Cause], *, named: bool
) -> Finding:
    """`signalled`: of the rows that stand, those whose process the kernel shows stopped: if there are any, the others wait for them."""
    window = case.window
    names = case.rank_ids(tuple(signalled) or rows)
    least = float(still[list(rows)].min())
    share = min(1.0, least / (window.end - window.start))
    some = named and (len(rows) < len(window.ranks) or not signalled)
    who = f"rank {', '.join(map(str, case.rank_ids(rows)))} has" if some else "the whole group has"
    why = "" if named else "; if the ranks share a clock one of them stopped all, and no metric says which"
    if signalled:
        why = f"; the process of rank {', '.join(map(str, names))} is stopped by a signal (state T)"
    weakened = window.missing(signals.KV_USAGE, signals.WAITING)
    return Finding(
        ranks=names if named else (),
        share=Share(share, share, 1.0),
        confidence=round((0.9 if least > 2 * STANDS else 0.7) * (0.75 if weakened else 1.0), 3),
        summary=f"{who} put out no token for {least:.0f} s with {work[list(rows)].sum():.0f} requests pending, while pages still come"
        + why,
        evidence=tuple(cause.evidence for cause in signalled.values())
        + tuple(
            Evidence(
                signal=signals.ATTENTION_TOKENS,
                what=f"rank {window.ranks[k]} put out no token for {still[k]:.0f} s with {work[k]:.0f} requests",
                observed=0.0,
                expected=None,
                unit="tokens/s",
                rank=window.ranks[k],
                promql=promql.VLLM_GENERATED,
            )
            for k in rows[:8]
        ),
        would_tell=""
        if signalled
        else "stacks of the engine cores and their workers (py-spy dump --pid PID): the one that does not wait for the others",
        weakened_by=weakened,
    )
