"""Ranks without a common clock: each one's own step time, given its load, is the evidence. Pure.

A step takes c0 + c1 tokens + c2 KV tokens (+ more for prompt tokens, and for each request that begins in it: such a step is no replay of a
graph), with coefficients that are not negative. So with k times the load it takes at most k times as long: a peer's step time times the
largest ratio of loads bounds what a rank of the same speed would need. A rank above that bound is slow, whatever the coefficients are.
Request counts say nothing here: balancers hold them equal.

Prompts and requests come by the second, not by the step: a rank whose steps are long for whatever reason gets more of them in each. So a
rank's prompts excuse long steps only as far as they come faster than its peers'; what comes no faster excuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from collector import promql, signals
from collector.model import Clock, FloatArray, Window
from diagnose import clocks, lockstep, prompts, sums
from diagnose.case import Case
from diagnose.confidence import confidence
from diagnose.model import Evidence, Finding, Healthy, NoData, Share
from diagnose.rules import Limits, Threshold

THRESHOLDS = {
    "own": Threshold(
        0.10,
        "of the rank's own step time",
        "above the bound that its load allows, which has its margin in it: healthy dense ranks of the workload stay 0.008 or more below it",
    ),
}

NEEDS = (signals.ATTENTION_TOKENS, signals.PREFILL_TOKENS, signals.RESIDENT_TOKENS)
"""What tells a slow rank from one that has more to do."""

FLOOR = 0.05
"""Share of a peer's tokens per step below which prompt tokens are no load of their own: a ratio of two small numbers is chance."""


BEGUN = 0.05
"""Begun requests per step below which they are no load of their own, as FLOOR: a rank of short answers on a real vLLM, with five times its
peer's, took 1.27 times as long for a step although its KV and its tokens were fewer."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Step times of ranks that do not meet."""

    steps: FloatArray  # (R,) s, each rank's own
    bound: FloatArray  # (R,) s, the median over peers of what each allows
    plain: FloatArray  # (R,) s, the median of the peers' step times
    tokens: FloatArray  # (R,) per step
    prompt: FloatArray  # (R,) of them prompt tokens
    times: FloatArray  # (R, R) load of the row's rank over the column's, at least 1

    @property
    def slower(self) -> FloatArray:
        """(R,) share of its own step time that a rank spends above the bound; negative below it."""
        return np.asarray(1.0 - self.bound / self.steps)

    @property
    def longer(self) -> FloatArray:
        """(R,) share of its own step time that a rank spends above its peers' median, whatever the reason."""
        return np.asarray(1.0 - self.plain / self.steps)


def pace(window: Window) -> Pace | None:
    """Step times of a window against what peers allow; None when fewer than two ranks put out tokens."""
    steps = _steps_of(window, slice(None))
    if np.isfinite(steps).sum() < 2:
        return None
    count, tokens, counted, running = (
        lockstep.nanmean(window.get(name))
        for name in (signals.DECODE_STEPS, signals.ATTENTION_TOKENS, signals.PREFILL_TOKENS, signals.RUNNING)
    )
    count = np.where(np.isfinite(steps), count, np.nan)
    prefill = prompts.computed(window)
    tokens = (tokens + sums.zeroed(prefill - counted)) / count  # what is under way is in no counter yet
    prompt = sums.zeroed(prefill) / count
    kv = next((window.mean(name) for name in (signals.RESIDENT_TOKENS, signals.KV_USAGE) if window.has(name)), running)
    ended = lockstep.nanmean(window.get(signals.FINISHED_REQUESTS))  # as many begin
    begun = _begun_times(ended, np.asarray(count), window.end - window.start)
    times = np.maximum(np.minimum(_times(tokens, prompt, kv), _fed_times(tokens, prompt, kv, prompt * count)), begun)
    return Pace(steps, _bound(steps, times), lockstep.peers_median(steps), tokens, prompt, times)


def _steps_of(window: Window, part: slice) -> FloatArray:
    """(R,) seconds per step of each rank in the columns `part`; NaN where it put out nothing."""
    time, count = (lockstep.nanmean(window.get(name)[:, part]) for name in (signals.DECODE_TIME, signals.DECODE_STEPS))
    usable = np.isfinite(time) & (time > lockstep.LEAST_RATE) & np.isfinite(count) & (count > lockstep.LEAST_RATE)
    return np.asarray(np.where(usable, time / np.where(usable, count, 1.0), np.nan))


def _times(tokens: FloatArray, prompt: FloatArray, kv: FloatArray) -> FloatArray:
    """(R, R) how many times the load of the rank of the column the rank of the row has, at least 1."""
    ranks = range(len(tokens))
    out = np.ones((len(tokens), len(tokens)))
    for r in ranks:
        for p in ranks:
            spare = FLOOR * tokens[p]
            ratios = (_over(tokens[r], tokens[p]), _over(prompt[r] + spare, prompt[p] + spare), _over(kv[r], kv[p]))
            out[r, p] = max(1.0, *ratios)
    return out


def _fed_times(tokens: FloatArray, prompt: FloatArray, kv: FloatArray, rate: FloatArray) -> FloatArray:
    """(R, R) as `_times`, by how fast prompts come: `rate`, (R,) prompt tokens per second.

    With A the part of a step without prompts and c the time of a prompt token, a step takes S = A + c rate S. If A of a rank is at most m
    times a peer's, and its rate k times the peer's, then its S is at most m (1 - f) / (1 - k f) times the peer's, with f = c rate the
    peer's share of time for prompts; for k up to 1 that is at most m. f is at most the prompts' share of the peer's tokens: a prompt
    token, which shares the reading of weights with a thousand others, takes less than the step's time over all its tokens.
    """
    decode = np.maximum(tokens - prompt, 0.0)
    out = _times(decode, np.zeros_like(decode), kv)
    ranks = range(len(tokens))
    for r, p in product(ranks, ranks):
        faster = _over(float(rate[r]), float(rate[p]))
        share = float(prompt[p] / tokens[p]) if tokens[p] > 0 else 1.0
        if not faster * share < 1.0:  # also where the peer had none: nothing is known of what they take
            out[r, p] = np.inf
        elif faster > 1.0:
            out[r, p] *= (1.0 - share) / (1.0 - faster * share)
    return out


def _begun_times(rate: FloatArray, count: FloatArray, seconds: float) -> FloatArray:
    """(R, R) how many times the begun requests per step of the rank of the column the rank of the row has for certain, at least 1; 1 where
    they come no faster. Of the few that begin in a window as many more or fewer as the root of their number are chance. `rate`: (R,)
    requests that begin per second; `count`: (R,) steps per second."""
    chance = np.sqrt(np.maximum(rate * seconds, 1.0)) / seconds
    surely, at_most = np.maximum(rate - chance, 0.0), rate + chance
    ratio = (surely[:, None] / count[:, None] + BEGUN) / (at_most[None, :] / count[None, :] + BEGUN)
    faster = surely[:, None] > at_most[None, :]
    return np.asarray(np.maximum(1.0, np.where(faster, sums.zeroed(ratio, 1.0), 1.0)))


def _bound(steps: FloatArray, times: FloatArray) -> FloatArray:
    """(R,) seconds per step that the median peer allows a rank, by how much more it has to do; NaN without a peer."""
    out = np.full(len(steps), np.nan)
    seen = np.isfinite(steps)
    for r in np.flatnonzero(seen):
        peers = seen & (np.arange(len(steps)) != r)
        if peers.any():
            out[r] = lockstep.median(steps[peers] * times[r, peers])
    return out


def _over(mine: float, peers: float) -> float:
    """How many times a peer's load a rank has; 1 where either was not observed, without end where the peer has none."""
    if not (np.isfinite(mine) and np.isfinite(peers)) or mine <= 0:
        return 1.0
    return float(mine) / float(peers) if peers > 0 else float("inf")


def slow_rank(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    """The answer of `slow_rank` where no wait is measured: the rank whose own steps are longer than its load allows, on ranks that do not
    meet; that nobody can be named, on those that do; and on those of which neither is known."""
    if case.window.engine.clock is Clock.FORWARD:
        return NoData((signals.SYNC_WAIT,), clocks.SHARED)
    found = pace(case.window)
    if found is None:
        return NoData(case.window.missing(signals.DECODE_TIME, signals.DECODE_STEPS), "no two ranks' step times were observed")
    if not case.long_enough:
        return NoData((), "the window is too short to show that a rank stays slow")
    rows = tuple(int(k) for k in np.flatnonzero(sums.zeroed(found.slower, -1.0) >= limit.own))
    if case.window.engine.clock is Clock.UNKNOWN:
        return NoData(() if rows or _apart(found) else (signals.SYNC_WAIT,), clocks.UNTOLD)
    if not rows:
        worst = float(np.nanmax(found.slower))
        return Healthy(f"every rank's steps are as short as its load allows by its peers' (the nearest is {-worst:.0%} below)")
    if missing := case.window.missing(*NEEDS):
        return NoData(missing, "a rank's steps are long, and without these a long prompt could be why")
    agreement = _agreement(case.window, found, rows, limit.own / 2)
    if agreement < limit.agreement:
        return NoData((), f"a rank's steps are longer than its load allows, but in only {agreement:.0%} of the window: read for longer")
    return _finding(case, found, rows, agreement, limit)


def _apart(found: Pace) -> bool:
    """Whether step times differ by more than those of ranks that share a clock: 1.05 measured at loads of 6 to 1."""
    return bool(np.nanmax(found.steps) > 1.1 * np.nanmin(found.steps))


def _agreement(window: Window, found: Pace, rows: tuple[int, ...], least: float) -> float:
    """Share of blocks of at least BLOCK_S in which one of `rows` is `least` above its bound, by the load of the whole window."""
    columns = len(window.edges) - 1
    blocks = min(int((window.end - window.start) // lockstep.BLOCK_S), columns)
    cuts = np.linspace(0, columns, blocks + 1).astype(int)
    parts = [_steps_of(window, slice(int(a), int(b))) for a, b in pairwise(cuts)]
    above = [sums.zeroed(1.0 - _bound(steps, found.times) / steps, -1.0)[list(rows)] for steps in parts if np.isfinite(steps).sum() > 1]
    return float(np.mean([bool((mine >= least).any()) for mine in above])) if above else 0.0


def _finding(case: Case, found: Pace, rows: tuple[int, ...], agreement: float, limit: Limits) -> Finding:
    row = max(rows, key=lambda k: float(found.slower[k]))
    names = case.rank_ids(rows)
    sure = float(found.slower[row])
    likely = max(sure, float(found.longer[row]))
    weakened = case.window.missing(signals.RUNNING)
    half = len(rows) * 2 >= int(np.isfinite(found.steps).sum())  # no majority: the fast ones could be the odd ones
    return Finding(
        ranks=names,
        share=Share(sure, sure, likely),
        confidence=confidence(sure, limit.own, agreement=agreement, missing=len(weakened)) * (0.9 if half else 1.0),
        summary=f"rank {', '.join(map(str, names))} takes {found.steps[row] * 1e3:.1f} ms per step, where its peers take"
        f" {found.plain[row] * 1e3:.1f} ms and its load allows at most {found.bound[row] * 1e3:.1f} ms; the share is of its own step time",
        evidence=(_steps(case, found, row), _running(case, row)),
        would_tell="one long prompt pinned to this rank and then to a peer (header X-data-parallel-rank): the time to its first token;"
        " clocks, throttle reasons and run-queue delay say whether card or host, --cudagraph-metrics whether it lost its graphs",
        weakened_by=weakened,
    )


def _steps(case: Case, found: Pace, row: int) -> Evidence:
    rank = case.window.ranks[row]
    return Evidence(
        signal="step_time",
        what=f"rank {rank}'s own steps take {found.steps[row] * 1e3:.1f} ms with {found.tokens[row]:.1f} tokens each; by its peers"
        f" {found.bound[row] * 1e3:.1f} ms would be the most",
        observed=float(found.steps[row]),
        expected=float(found.bound[row]),
        unit="s",
        rank=rank,
        promql=promql.VLLM_STEP_TIME,
    )


def _running(case: Case, row: int) -> Evidence:
    rank, running = case.window.ranks[row], case.window.mean(signals.RUNNING)
    usual = float(lockstep.peers_median(running)[row])
    return Evidence(
        signal=signals.RUNNING,
        what=f"it runs {running[row]:.1f} requests, its peers {usual:.1f}: counts do not show it",
        observed=float(running[row]),
        expected=usual,
        unit="requests",
        rank=rank,
        promql=promql.VLLM_RUNNING,
    )
