"""One rank's drafted tokens are refused: its requests need more steps than its peers'.

What it detects: tokens per request and decode step that stay far below the peers' on one rank of a speculating engine.
Why it matters: verifying costs the rank as much as before, so its requests stay longer, its batch grows, and every step yields less.
Not this rule: a rank that is simply dealt more requests (`request_count_skew`); a bad card, which refuses no drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collector import promql, signals
from diagnose import acceptance, graphs, lockstep, sums
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case

NEEDS = (signals.ACCEPT_LENGTH, signals.RUNNING)


@rule(
    klass=Class.LOAD,
    severity=Severity.NOTE,
    remedy="Spread the traffic that the draft model guesses badly over the ranks (no routing by tenant or prompt kind), or draft less where"
    " it is refused: fewer --speculative-num-steps and --speculative-num-draft-tokens.",
    needs=NEEDS,
    share=Threshold(
        0.03,
        "of the tokens",
        "the lowest of 8 healthy ranks costs at most 0.005 (healthy_spread.py --engine speculating, 18 windows): six times that",
    ),
    **acceptance.THRESHOLDS,
)
def speculation_skew(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window = case.window
    if case.prefills:
        return Healthy("a prefill server decodes nothing, so nothing is drafted")
    if window.has(signals.EAGER_STEPS, signals.GRAPH_STEPS) and graphs.eager_share(window) is None:
        return Healthy("no rank decoded in a step: nothing was drafted")
    if missing := window.missing(*NEEDS):
        return NoData(missing, "how many tokens a request gets from a step was not observed")
    if not acceptance.speculates(window):
        return Healthy("the engine does not speculate: each request gets one token per step")
    short = acceptance.shortfall(window)
    if short is None:
        return NoData((), "tokens per step were observed on one rank only: there is no peer to compare with")
    if not case.long_enough:
        return NoData((), "the window is too short to show that acceptance stays low")
    rank, running = window.ranks[short.row], window.mean(signals.RUNNING)
    gets = f"rank {rank}'s requests get {short.own:.2f} tokens per step, its peers' {short.peers:.2f}"
    if short.ratio > limit.ratio or short.steady < limit.leads:
        return Healthy(f"drafts are accepted alike: {gets} at the least")
    lowest = None if case.baseline is None else acceptance.lowest(case.baseline, window.end - window.start)
    # few requests may be odd ones, but not where no rank of the past, with as few, came near it
    if not running[short.row] >= limit.requests and (lowest is None or short.own > limit.ratio * lowest):
        return Healthy(f"{gets}, but it runs only {running[short.row]:.1f} requests: their content decides, not the rank")
    share = _share(case, short)
    if share.mid < limit.share:
        return Healthy(f"{gets}, which costs {share.mid:.1%} of the engine's tokens")
    return Finding(
        ranks=(rank,),
        share=share,
        confidence=confidence(share.mid, limit.share, agreement=short.steady),
        summary=f"{gets}: they need {short.peers / max(short.own, 1e-9):.1f} times as many steps",
        evidence=(
            Evidence(
                signal=signals.ACCEPT_LENGTH,
                what=f"{gets}; it is the lowest in {short.steady:.0%} of the intervals",
                observed=short.own,
                expected=short.peers,
                unit="tokens/step",
                rank=rank,
                threshold=limit.ratio * short.peers,
                promql=promql.ACCEPT_LENGTH,
            ),
            Evidence(
                signal=signals.RUNNING,
                what=f"rank {rank} runs {running[short.row]:.1f} requests, its peers {_peers(running, short.row):.1f}",
                observed=float(running[short.row]),
                expected=_peers(running, short.row),
                unit="requests",
                rank=rank,
                promql=promql.RUNNING,
            ),
        ),
        would_tell="the same prompts on another rank: if they are refused there too, it is their content and no rank is at fault",
    )


def _peers(values: np.ndarray, row: int) -> float:
    return float(lockstep.peers_median(values)[row])


def _share(case: Case, short: acceptance.Shortfall) -> Share:
    """What the engine's steps would yield more with the peers' acceptance on that rank, of all they then yield.

    That is throughput to gain while there are requests to fill the batch. An engine that already serves all its traffic gains only the
    attention time of the requests that would have left earlier: the lower end.
    """
    length, running = case.window.mean(signals.ACCEPT_LENGTH), case.window.mean(signals.RUNNING)
    lost = float(running[short.row]) * (short.peers - short.own)
    whole = sums.total(running * length) + lost
    share = min(1.0, lost / whole) if whole > 0 else 0.0
    return Share(share, min(share, _attention(case, short)), share)


def _attention(case: Case, short: acceptance.Shortfall) -> float:
    load = case.pair_load
    if load is None or load.cost is None or load.leader != short.row or not case.step_time:
        return 0.0
    left = max(load.busiest * short.ratio, float(np.nanmax(np.delete(load.pairs, load.leader))))
    return max(0.0, (load.busiest - left) * load.cost.low / case.step_time)
