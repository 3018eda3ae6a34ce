"""What a reader must know of a diagnosis beside its verdict: which clock was read, what was simulated, what could not be seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from diagnose import clocks, fleet
from diagnose.case import Case
from diagnose.confidence import calibration
from diagnose.model import Class, Healthy, Outcome, Verdict
from diagnose.over_past import Excess


def notes(case: Case, verdict: Verdict, outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """One sentence each, the clock first."""
    said = [f"Clock read: {case.window.engine.clock}. {clocks.NOTES[case.window.engine.clock]}"]
    accelerator = case.window.engine.facts.accelerator
    if accelerator and "virtual" in accelerator.lower():
        said.append(f"The engine says that it runs on {accelerator}: its durations are simulated.")
    if verdict.confidence:
        said.append(
            f"Confidence is calibrated on {calibration().runs} simulated runs: the share of such verdicts that was right there. "
            "No run on a GPU is among them."
        )
    if case.prefills:
        said.append("A prefill server's steps are as long as its prompts: a slowdown of the whole group would not be seen.")
    elif case.baseline is None:
        said.append(_without_past(len(case.twins)))
    elif verdict.klass is Class.HEALTHY and case.excess is not None:
        said.append(_beside_past(case.excess))
    # what is out of order and costs nothing: worth a line, nobody's alarm
    said += [f"{outcome.why[:1].upper()}{outcome.why[1:]}." for outcome in outcomes if isinstance(outcome, Healthy) and outcome.evidence]
    return tuple(said)


def _without_past(twins: int) -> str:
    if not twins:
        return "No healthy past of this engine was given: a slowdown of the whole group would not be seen."
    if twins < fleet.QUORUM:
        return "No healthy past was given, and one twin is no majority: which of the two is slower than it should be would not be seen."
    return f"No healthy past was given: the measure is {twins} twins, so a slowdown of most of them would not be seen."


def _beside_past(excess: Excess) -> str:
    """A healthy verdict has a rise too small to blame; whoever is asked "was it always like this?" wants its figure."""
    steps = f"A step takes {excess.now * 1e3:.1f} ms, in the healthy past {excess.before * 1e3:.1f} ms"
    if excess.share.mid <= 0:
        return f"{steps}: the load explains it."
    return f"{steps}: {excess.share.mid:.1%} of step time is more than load and known causes explain, too little to be called a fault."
