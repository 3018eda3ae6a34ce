"""What a probe has found, as text for people and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose import pinned
from diagnose.report.plain import safe, wrap


def announce(name: str, ranks: Sequence[int], tokens: int) -> str:
    """What is about to be done to the engine, at the most."""
    rounds, width = pinned.ROUNDS, len(ranks)
    return (
        f"this gives {safe(name, 100)} work: prompts of {tokens:,} tokens with one token of answer, pinned to each of {width} ranks in"
        f" turn, one at a time, with a pause after each as long as it took. At most {rounds * width} requests"
        f" ({rounds * width * tokens:,} tokens), usually {pinned.FIRST_LOOK * width} to {(pinned.FIRST_LOOK + 2 * pinned.EVERY) * width}."
        " While one is computed, all ranks' steps are longer."
    )


def render(name: str, tokens: int, verdict: pinned.Verdict, width: int) -> str:
    """The answer first, then each rank's figures."""
    lines = [*wrap(headline(verdict), width), "", *wrap(_meaning(name, verdict), width), ""]
    lines.append(f"{'rank':>6}  {'s per prompt':>12}  {'against peers':>13}  {'at most':>8}")
    for one in verdict.standings:
        mark = ">" if one.rank in verdict.ranks else " "
        lines.append(f"{mark}{one.rank:>5}  {one.median * tokens:>12.3f}  {one.slower:>+13.1%}  {one.at_most:>+8.1%}")
    asked = verdict.rounds * len(verdict.standings)
    said = (
        f"{asked} requests in {verdict.rounds} rounds. Against peers: the median of the rounds; at most: {pinned.SURE:.0f} standard errors"
        f" above it. Such a difference comes by chance with probability {verdict.chance:.2g} among alike cards;"
        f" {pinned.ERROR / len(pinned.looks()):.2g} is asked for."
    )
    return "\n".join([*lines, "", *wrap(said, width)]) + "\n"


def headline(verdict: pinned.Verdict) -> str:
    """One sentence."""
    if verdict.outcome is pinned.Outcome.SLOW:
        slower = {one.rank: one.slower for one in verdict.standings}
        return "; ".join(
            f"rank {rank} computes slower: its prompts take {slower[rank]:.0%} longer than its peers'" for rank in verdict.ranks
        )
    if verdict.outcome is pinned.Outcome.LEVEL:
        return f"No rank computes slower: none takes more than {verdict.excluded:.0%} longer than its peers for the same prompt"
    return f"Open: the times scatter too much, a rank whose prompts take {verdict.excluded:.0%} longer could be among these"


def _meaning(name: str, verdict: pinned.Verdict) -> str:
    if verdict.outcome is pinned.Outcome.SLOW:
        alone = " Of two ranks the slower is named; that both are slow, this one more, is possible." if len(verdict.standings) == 2 else ""
        return (
            "The slowness is in proportion to the rank's work, as of a card (clock, power, memory): where ranks step together, a delay that"
            " every step pays slows all prompts alike. On vLLM without experts ranks step alone, and such a delay shows here too. A step"
            " also holds what all share, so a card is slower than its prompts: about three times that on a model with experts. Look at"
            " its clocks and throttle reasons (slowrank diagnose --nvml or --hardware), then at slowrank explain gpu_throttled."
            f"{alone}"
        )
    if verdict.outcome is pinned.Outcome.LEVEL:
        return (
            "If the engine is slow nevertheless, what slows it is paid in every step, whoever has the work: a delay in one rank's host or"
            " process, a link, hot experts, or all cards alike. Such a delay slows every probe by the same and has no name here:"
            f" slowrank diagnose {safe(name, 100)} reads the waits and processes that tell."
        )
    return "Nothing is named and nothing excluded. Try again at a quieter time, or with longer prompts (--tokens)."


def to_json(name: str, tokens: int, verdict: pinned.Verdict) -> dict[str, object]:
    """The same for programs; `slower` and `at_most` are shares of a prompt's time."""
    return {
        "schema": "slowrank.probe/1",
        "engine": name,
        "outcome": verdict.outcome.value,
        "ranks": list(verdict.ranks),
        "requests": verdict.rounds * len(verdict.standings),
        "tokens": tokens,
        "chance": verdict.chance,
        "standings": [{"rank": s.rank, "seconds": s.median * tokens, "slower": s.slower, "at_most": s.at_most} for s in verdict.standings],
    }
