"""Decode steps run without CUDA graphs although nobody prefills in them.

What it detects: decode passes that run eagerly in far more steps than prefill anywhere in the group explains.
Why it matters: graphs are replayed only if every rank votes for it; one rank outside the captured sizes costs all ranks the launch time.
Not this rule: graphs lost to one rank's prompts (`long_prefill`); a group that slows with its graphs intact (`whole_group_slow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import promql, signals
from diagnose import attribution, change, graphs
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Limits, Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case


UNPRICED = 0.6
"""Confidence without a past that measures it: the lost graphs are counted, what they cost is not known."""


@rule(
    klass=Class.STRUCTURAL,
    severity=Severity.TICKET,
    remedy="Raise the captured sizes to the largest batch that a rank runs (--cuda-graph-max-bs), or cap the batch"
    " (--max-running-requests); look in the start-up log for a rank whose capture was switched off.",
    needs=(signals.GRAPH_STEPS, signals.EAGER_STEPS, signals.STEPS_ACTIVE),
    unexplained=Threshold(
        0.3,
        "of decode passes",
        "healthy passes run eagerly at most 0.08 more than independent prefills explain, with any traffic (seeds 5, 11); lost graphs 0.32",
    ),
    share=Threshold(0.05, "of step time", "unexplained differences between healthy windows reach 0.031 (healthy_spread.py)"),
)
def graph_fallback(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window = case.window
    if case.prefills:
        return Healthy("a prefill server has no decode passes that could lose their graphs")
    eager = graphs.eager_share(window)
    touched = graphs.prefill_expected(window)
    if missing := window.missing(signals.GRAPH_STEPS, signals.EAGER_STEPS, signals.STEPS_ACTIVE):
        return NoData(missing, "how decode passes ran was not counted")
    if eager is None or touched is None:
        return Healthy("no rank decoded in a step: there is no pass that could have lost its graph")
    if not case.long_enough:
        return NoData((), "the window is too short to show that graphs stay lost")
    if eager - touched < limit.unexplained:
        return Healthy(f"{eager:.0%} of decode passes ran without a graph; prefill touches {touched:.0%} of the steps")
    if not _still(case, limit):
        return Healthy("decode passes ran without a graph earlier in the window; by its end prefill explains those that do")
    # a past whose steps were far too long for what this load needs measures no launch time
    priced = case.excess is not None and case.excess.share.mid >= -attribution.DRIFT
    share = _bounded(case.excess.share) if priced and case.excess else Share(0.0, 0.0, 0.0)  # only the past says what launching costs here
    lost = case.baseline is not None and graphs.lost(window, case.baseline)
    # graphs lost since the past cost what is left open: the price of a launch is no part of the past's, and prompts may have hidden it
    if priced and not lost and share.mid < limit.share:
        return Healthy(f"{eager:.0%} of decode passes ran without a graph, at no cost in step time")
    return Finding(
        ranks=(),
        share=share,
        confidence=confidence(share.mid, limit.share) if priced else UNPRICED,
        summary=f"{eager:.0%} of decode passes run without a CUDA graph, and prefill explains only {touched:.0%}; one rank's vote does it",
        evidence=(
            Evidence(
                signal=signals.EAGER_STEPS,
                what=f"{eager:.0%} of decode passes ran eagerly, while prefills touch {touched:.0%} of the steps",
                observed=eager,
                expected=touched,
                unit="of passes",
                threshold=touched + limit.unexplained,
                promql=promql.EAGER_SHARE,
            ),
        ),
        would_tell="the batch size of each rank against the captured sizes in its start-up log: the rank above them votes no",
    )


def _still(case: Case, limit: Limits) -> bool:
    """Whether the last third of the window shows it too, if by half as much: between two scrapes that are far apart a group may fall idle,
    and then passes of the time before stand beside steps of the time after. Prompts that touch nearly all passes leave nothing to show."""
    count = len(case.window.edges) - 1
    end = change.columns(case.window, 2 * count // 3, count)
    eager, touched = graphs.eager_share(end), graphs.prefill_expected(end)
    return eager is None or touched is None or touched > 1.0 - limit.unexplained or eager - touched >= limit.unexplained / 2


def _bounded(share: Share) -> Share:
    return Share(max(0.0, share.mid), max(0.0, share.low), max(0.0, min(1.0, share.high)))
