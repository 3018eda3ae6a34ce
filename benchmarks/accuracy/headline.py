"""The headline figures of a set of judged runs: class, culprit, cause. Computed alike for all signals and for fewer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.judge import NO_NEWS, Judged, blames, cause_right, class_right, ranks_right, right
from benchmarks.accuracy.observe import Said
from benchmarks.accuracy.stats import Interval, bootstrap, macro_f1, wilson

Reading = Callable[[Judged], Said | None]
SURE = 0.8
"""A wrong verdict above this confidence misleads; below it, the report itself says that it is unsure."""


def main_of(run: Judged) -> Said:
    """The verdict of the service, with everything read."""
    return run.observed.main


def brief_of(run: Judged) -> Said | None:
    """The verdict of a live look."""
    return run.observed.brief


@dataclass(frozen=True, slots=True)
class Headline:
    """`confident_wrong` counts verdicts that blame wrongly with a confidence above SURE."""

    f1: Interval
    top1: Interval
    cause: Interval
    abstained: Interval
    wrong: Interval
    confident_wrong: int


def headline(runs: Iterable[Judged], read: Reading = main_of, *, all_in: bool = False) -> Headline:
    """Figures of the runs with one fault or none. `all_in`: also faults that an engine's metrics cannot show, by their true class."""
    pairs = [(run, said) for run in runs if len(run.truths) < 2 and (said := read(run)) is not None]
    faulty = [(run.truth, said) for run, said in pairs if run.truths and _counts(run, all_in)]
    classes = [(truth.klass, said.klass) for truth, said in faulty]
    classes += [("healthy", said.klass) for run, said in pairs if not run.truths]
    ranked = [(truth, said) for truth, said in faulty if truth.ranks]
    n = len(faulty)
    wrong = [said for truth, said in faulty if blames(said) and not class_right(said, truth)]
    wrong += [said for run, said in pairs if not run.truths and blames(said)]
    return Headline(
        f1=bootstrap(classes, macro_f1),
        top1=wilson(sum(ranks_right(said, truth) for truth, said in ranked), len(ranked)),
        cause=wilson(sum(cause_right(said, truth) for truth, said in faulty), n),
        abstained=wilson(sum(not blames(said) and not class_right(said, truth) for truth, said in faulty), n),
        wrong=wilson(len(wrong), len(classes)),
        confident_wrong=sum(said.confidence > SURE for said in wrong),
    )


def _counts(run: Judged, all_in: bool) -> bool:
    return run.truth.tells == "metrics" or (all_in and run.truth.tells in {"card", *NO_NEWS})


def sure_and_right(runs: Sequence[Judged], read: Reading = main_of) -> list[tuple[float, float, bool]]:
    """(stated, calibrated, right?) of every verdict that names a cause."""
    said = [(run, one) for run in runs if (one := read(run)) is not None and one.cause is not None]
    return [(one.raw, one.confidence, right(one, run.truths)) for run, one in said]
