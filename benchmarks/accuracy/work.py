"""Runs made, observed and judged, over processes, with a line of progress. The same runs in the same order give the same figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from benchmarks.accuracy import plan
from benchmarks.accuracy.effect import Facts
from benchmarks.accuracy.judge import Judged, judge, onset
from benchmarks.accuracy.observe import Look, feels, observe, serving
from benchmarks.accuracy.plan import Spec
from benchmarks.accuracy.runs import Made, RefusedError, make
from collector.capture import read_capture

Item = TypeVar("Item")
Result = TypeVar("Result")


WARM_UP = 20.0
"""Seconds that a cluster comes to rest in, after which a fault that is there from the start is looked at."""


@dataclass(frozen=True, slots=True)
class Depth:
    """How much is asked of each run: what costs time and is not needed of all."""

    polls: bool = False
    incidents: bool = False
    ablate: bool = False
    remove: bool = False


def one(task: tuple[Spec, Depth], folder: Path) -> Judged | str:
    """A run from its making to its judgement, or why it cannot be made."""
    spec, depth = task
    try:
        made = make(spec, folder)
    except RefusedError as error:
        return f"{spec.about}: {str(error).removeprefix(f'{spec.about}: ')}"
    return look_at(spec, depth, made, _usual(plan.twin(spec), folder) if spec.real is None and spec.schedule else None)


@cache
def _usual(twin: Spec, folder: Path) -> Facts:
    """What a healthy twin does."""
    pages = list(read_capture(make(twin, folder).capture))
    return feels(serving(pages, twin.length), Look(_moment(twin), twin.length))


def _moment(spec: Spec) -> float:
    return spec.onset if spec.has_past else WARM_UP


def look_at(spec: Spec, depth: Depth, made: Made, usual: Facts | None = None) -> Judged:
    """A capture observed, then its labels read. `usual`: what the engine does without the fault."""
    pages = list(read_capture(made.capture))
    moment = _moment(spec) if spec.real is None else onset(made.labels) - pages[0].arrived
    length = min(spec.length, pages[-1].arrived - pages[0].arrived)
    observed = observe(pages, Look(moment, length, spec.has_past, usual, depth.polls, depth.incidents, depth.ablate, depth.remove))
    return judge(spec, made.labels, observed)


def judged(tasks: Sequence[tuple[Spec, Depth]], folder: Path, jobs: int, what: str) -> tuple[list[Judged], list[str]]:
    """All tasks' results in their order, and why some could not be made, once each."""
    done = spread(partial(one, folder=folder), tasks, jobs, what)
    refused = dict.fromkeys(d for d in done if isinstance(d, str))
    return [d for d in done if isinstance(d, Judged)], list(refused)


def spread(work: Callable[[Item], Result], items: Iterable[Item], jobs: int, what: str) -> list[Result]:
    """`work` on every item, in order, over at most `jobs` processes."""
    todo, done, started = list(items), [], time.monotonic()
    if jobs == 1:
        for item in todo:
            done.append(work(item))
            _say(what, len(done), len(todo), started)
        return done
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for result in pool.map(work, todo):
            done.append(result)
            _say(what, len(done), len(todo), started)
    return done


def _say(what: str, done: int, of: int, started: float) -> None:
    passed = time.monotonic() - started
    left = passed / done * (of - done)
    end = "\n" if done == of else ""
    print(f"\r{what}: {done} of {of}, {passed:.0f} s, {left:.0f} s left   ", end=end, file=sys.stderr, flush=True)
