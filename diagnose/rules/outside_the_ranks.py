"""Requests wait outside the ranks: the front end, not the engine's ranks, is slow.

What it detects: a time to the first token that the ranks' queues, prefill and steps do not account for.
Why it matters: the users see a slow engine, every rank looks well, and no card, routing or layout repairs it.
Not this rule: requests that queue on the ranks; prefill that takes long (`long_prefill`, `prefill_drags_decode`); clients that send little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector import promql, signals
from diagnose import front_end, sums
from diagnose.confidence import confidence
from diagnose.model import Class, Evidence, Finding, Healthy, NoData, Severity, Share
from diagnose.rules import Threshold, rule

if TYPE_CHECKING:
    from diagnose.case import Case
    from diagnose.rules import Limits


_CPU = {
    "sglang": "sglang:process_cpu_seconds_total by component: tokenizer, detokenizer",
    "vllm": "the processes VLLM::APIServer, or process_cpu_seconds_total where there is one",
}


@rule(
    klass=Class.OUTSIDE,
    severity=Severity.TICKET,
    remedy="Look at the front end's processes, not at the ranks: CPU of the tokenizer and detokenizer; on SGLang more of them"
    " (--tokenizer-worker-num) or --skip-tokenizer-init, on vLLM more API servers (--api-server-count).",
    needs=(*front_end.NEEDS, signals.STEPS_ACTIVE),
    seconds=Threshold(
        0.3,
        "s per request",
        "all but 0.00 was the ranks' in 256 healthy windows of four traffics (healthy_spread.py); answers kept for 0.6 s gave 0.44, with a"
        " past 0.5 or more",
    ),
    part=Threshold(
        0.3,
        "of the time to the first token",
        "answers kept for 0.6 and 1 s were 0.6 and 0.8 of it; of a long prompt's wait 0.3 s is no part: other windows of at least 0.3 s"
        " against a past had at most 0.16",
    ),
    apart=Threshold(
        7.5,
        "s between looks",
        "a burst of 20 prompts is computed within some seconds: at 1 to 5 s between looks it was seen as a queue, at 15 s in none of three"
        " windows (bursty, diurnal; seeds 1 and 2)",
    ),
    lead=Threshold(
        1.5,
        "x the peers' prefill time",
        "where a front end that keeps answers was found at 15 s between looks, some rank had up to 1.40; bursts on one rank had 1.58 and"
        " more (seeds 0 to 3, six traffics)",
    ),
    queued=Threshold(
        0.1,
        "of the time to the first token",
        "of waits of 17 to 31 s behind draining queues 0.24 and more was seen as queue, the rest was queue too; the front end gave 0.00",
    ),
)
def outside_the_ranks(case: Case, limit: Limits) -> Finding | Healthy | NoData:
    window, found = case.window, case.first_tokens
    if missing := window.missing(*front_end.needs(window), signals.STEPS_ACTIVE):
        return NoData(missing, "how long requests wait for their first token, or how long the ranks hold them, was not observed")
    if window.engine.kind == "vllm" and front_end.stays_long(window):
        return NoData(
            (), "requests stay for most of the window, and vLLM tells how long the ranks held one when it ends: a longer window would tell"
        )
    if found is None:
        return NoData((), "no streaming request got its first token in this window")
    if not case.long_enough:
        return NoData((), "the window is too short to show that requests keep waiting outside")
    outside = found.beyond(case.first_tokens_before)
    said = f"a first token takes {found.wait:.2f} s, of which the ranks account for {found.wait - outside:.2f} s"
    if outside < max(limit.seconds, limit.part * found.wait):
        return Healthy(said)
    if _unseen(case, limit):
        return NoData((), f"{said}; pages are too far apart to see a queue that comes and goes on the rank that prefills most")
    if found.queued > limit.queued * found.wait:
        return Healthy(f"{said}; requests queue on the ranks, and a queue that shrinks was longer for those that leave it now")
    held = sums.total(window.mean(signals.RUNNING) + window.mean(signals.WAITING))
    away = found.rate * outside
    share = away / (away + held)
    weakened = () if window.engine.kind == "vllm" else window.missing(*front_end.BETTER)
    return Finding(
        ranks=(),
        share=Share(share, share, min(1.0, share * found.wait / outside)),
        confidence=confidence(outside, limit.seconds, missing=len(weakened)),
        share_of="the requests' time",
        summary=f"{said}: requests wait {outside:.2f} s outside the ranks, {share:.0%} of their time if all is as now",
        evidence=(
            Evidence(
                signal=signals.FIRST_TOKEN_TIME,
                what=f"{said}: {found.queued:.2f} s queued, {found.computed:.2f} s computed, {found.stepping:.2f} s for at most"
                f" {front_end.STEPS:.0f} steps",
                observed=found.wait,
                expected=found.wait - outside,
                unit="s",
                threshold=found.wait - outside + limit.seconds,
                promql=promql.ANSWER_WAIT,
            ),
        ),
        would_tell=f"CPU of the front end ({_CPU.get(window.engine.kind, 'top')}): one at a core is full; if none is, the network between",
        weakened_by=weakened,
    )


def _unseen(case: Case, limit: Limits) -> bool:
    """Whether requests may have queued on a rank that prefills more than its peers, between two looks."""
    window, load = case.window, case.prefill_load
    looked = (window.end - window.start) / max(1, len(window.edges) - 1)
    return looked > limit.apart and load is not None and float(load.busy[load.leader]) > limit.lead * load.usual
