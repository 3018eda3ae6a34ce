"""What a reader must know of a diagnosis beside its verdict: which clock was read, what was simulated, what could not be seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from diagnose import clocks, fleet
from diagnose.case import Case
from diagnose.confidence import calibration
from diagnose.model import Healthy, Outcome, Verdict


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
    # what is out of order and costs nothing: worth a line, nobody's alarm
    said += [f"{outcome.why[:1].upper()}{outcome.why[1:]}." for outcome in outcomes if isinstance(outcome, Healthy) and outcome.evidence]
    return tuple(said)


def _without_past(twins: int) -> str:
    if not twins:
        return "No healthy past of this engine was given: a slowdown of the whole group would not be seen."
    if twins < fleet.QUORUM:
        return "No healthy past was given, and one twin is no majority: which of the two is slower than it should be would not be seen."
    return f"No healthy past was given: the measure is {twins} twins, so a slowdown of most of them would not be seen."
