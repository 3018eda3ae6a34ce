"""vLLM: where its page is, which rank is which, and what only two pages together can tell. Pure.

Raw names are a table: `vllm_metrics.ROWS`. The source of every fact is the code of vLLM 0.32 and 0.33 and runs of 0.32 (docs/signals.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import fsum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from collector import signals
from collector.engines import vllm_clock, vllm_metrics
from collector.engines.limits import MAX_RANKS, name_ranks
from collector.errors import ConfigError, SourceError
from collector.exposition import Parser
from collector.model import Clock, FloatArray, Page, Problem, Reading, Source, Window
from collector.targets import parse_target

BoolArray: TypeAlias = npt.NDArray[np.bool_]

PATHS: dict[Source, str] = {Source.VLLM_METRICS: "/metrics"}
"""URL path of each source, below a node's base URL."""

INFLATED = 1.2
"""Steps per second that are counted, times the step time: measured 0.93 to 1.09 with one API server and 1.7 to 2.1 with two.
Above this the count is of API servers' shares in steps, not of steps."""

LEAST = 1e-6
"""Rate below which nothing happened: one event in eleven days."""


class Reader:
    """Reads the pages of one engine. What it remembers of a page makes the next one fast; what it remembers of the nodes says which rank is
    which (`_Ranks`)."""

    def __init__(self) -> None:
        self._parsers: dict[str, Parser] = {}
        self._firsts: dict[str, tuple[float, float]] = {}  # first tokens by node: seconds until them, and how many
        self._ranks: _Ranks | None = None

    def read(self, page: Page) -> Reading:
        """One page in canonical terms. Beside the catalogue's signals a reading holds helper counters (their names begin with `_`) that
        only `adjust` uses. Raises SourceError for a page that cannot be what its source says, and for a page that is a failure.
        """
        url = page.node + PATHS[page.source]
        if page.error is not None:
            raise SourceError(page.error)
        if page.status != 200:
            raise SourceError(f"{url}: HTTP {page.status}")
        if page.node not in self._parsers:
            self._parsers[page.node] = vllm_metrics.parser()
        try:
            reading = vllm_metrics.read(page, url, self._parsers[page.node])
        except SourceError as error:
            message = str(error)
            raise SourceError(message if url in message else f"{url}: {message}") from None
        if self._ranks is None:
            self._ranks = _Ranks(_nodes(page.engine))
        return self._with_first_tokens(self._ranks.named(reading))

    def _with_first_tokens(self, reading: Reading) -> Reading:
        """The reading with the first tokens of all nodes' engines, once each has told: a part of them is not the whole's."""
        seconds, count = (reading.values.get(name, {}) for name in (vllm_metrics.FIRST_TIME, vllm_metrics.FIRSTS))
        if not seconds or seconds.keys() != count.keys():
            return reading
        self._firsts[reading.node] = fsum(seconds.values()), fsum(count.values())
        if any(node not in self._firsts for node in _nodes(reading.engine)):
            return reading
        whole = [fsum(part) for part in zip(*self._firsts.values(), strict=True)]
        engine = {signals.FIRST_TOKEN_TIME: {-1: whole[0]}, signals.FIRST_TOKENS: {-1: whole[1]}}
        return replace(reading, times={**reading.times, -1: reading.arrived}, values={**reading.values, **engine})


def read(page: Page) -> Reading:
    """One page in canonical terms, as `Reader.read`; for a page on its own."""
    return Reader().read(page)


def _nodes(engine: str) -> tuple[str, ...]:
    """The nodes that an engine's id, which is the target as it was typed, lists; none when it is no target."""
    try:
        return parse_target(engine).nodes
    except ConfigError:
        return ()


@dataclass(slots=True)
class _Ranks:
    """Which rank an engine number of a node is.

    Nodes of one deployment number their engines together: then the number is the rank. Servers that were started each by itself all begin
    with 0: they have no clock in common, and the ranks are counted through in the order of `nodes`. Which of the two it is shows when a
    second node claims a number; so that it is known from the start, the first page of a later node is not read before the first node's.
    """

    nodes: tuple[str, ...]
    claims: dict[int, str] = field(default_factory=dict)  # engine number -> the node that showed it first
    put_off: set[str] = field(default_factory=set)
    width: int = 0  # engines of each server, once they are known to be servers of their own
    heard: set[str] = field(default_factory=set)

    def named(self, reading: Reading) -> Reading:
        """The reading with ranks instead of engine numbers."""
        node = reading.node
        place = self.nodes.index(node) if node in self.nodes else 0
        numbers = sorted(reading.times)
        if place and self.nodes[0] not in self.heard and node not in self.put_off:
            self.put_off.add(node)
            return replace(reading, times={}, values={})
        self.heard.add(node)
        if not self.width and any(self.claims.setdefault(number, node) != node for number in numbers):
            self.width = max(self.claims) + 1
        if not self.width:
            return replace(reading, speakers=dict.fromkeys(numbers, place))
        where = {number: place * self.width + number for number in numbers if number < self.width and place * self.width < MAX_RANKS}
        what = "these are servers of their own, each of which calls its first engine 0"
        then = f"ranks are counted through in the order of the target, {self.width} a server; give servers that do not share load apart"
        problems = [*reading.problems, Problem(reading.engine, what, then)]
        if len(where) < len(numbers):
            problems.append(Problem(node, f"has more engines than the {self.width} of the others; the rest was not read"))
        return replace(
            reading,
            times={where[n]: at for n, at in reading.times.items() if n in where},
            values={name: {where[n]: value for n, value in found.items() if n in where} for name, found in reading.values.items()},
            facts=replace(reading.facts, clock=Clock.NONE),
            problems=tuple(problems),
            speakers=dict.fromkeys(where.values(), place),
        )


def adjust(window: Window) -> Window:
    """The window with what only a comparison of two pages tells: step time, steps and tokens from the helper counters, which are gone; the
    clock; KV figures that never move from 0 on a rank that runs requests are dropped, with a Problem."""
    values = dict(window.values)
    problems = list(window.problems)
    _steps(values)
    _tokens(values)
    _accepted(values)
    problems += _without_kv(window, values)
    kept = {name: found for name, found in values.items() if not name.startswith("_") and np.isfinite(found).any()}
    told = replace(window, values=kept, problems=tuple(problems))
    stated, seen = window.engine.facts.clock, vllm_clock.tell(told)
    if stated is not None and seen not in {stated, Clock.UNKNOWN}:
        what = f"the ranks' step times move as with {str(seen)!r}, but {str(stated)!r} was given or follows from the targets"
        problems.append(Problem(window.engine.id, what, "look whether the model has experts; leave out --clock to read what shows"))
    clock = stated or seen
    return replace(told, values=kept | _idle(kept, clock), engine=replace(window.engine, clock=clock), problems=tuple(problems))


def _steps(values: dict[str, FloatArray]) -> None:
    """DECODE_TIME, the share of time in which a rank had a decoding request, DECODE_STEPS that fit into it, and STEPS_ACTIVE.

    Time between outputs over their number is the step time; summed per second it is how many requests decode, so that it is the share
    of time while that is below 1, and all of the time above.
    """
    time, count = values.get(vllm_metrics.GAP_TIME), values.get(vllm_metrics.GAPS)
    if time is None or count is None:  # a log, whose lines are of steps
        if signals.DECODE_STEPS in values:
            values[signals.STEPS_ACTIVE] = values[signals.DECODE_STEPS]
        return
    step = np.full(time.shape, np.nan)
    np.divide(time, count, out=step, where=np.isfinite(time) & (time > LEAST) & np.isfinite(count) & (count > LEAST))
    idle = np.isfinite(time) & ~np.isfinite(step)
    values[signals.DECODE_TIME] = np.minimum(time, 1.0)
    values[signals.DECODE_STEPS] = np.where(idle, 0.0, np.minimum(time, 1.0) / step)
    iterations = values.get(vllm_metrics.ITERATIONS)
    # a step that only computes part of a prompt has no output: it is in neither figure
    exact = iterations is not None and _count_of_steps(iterations, values[signals.DECODE_STEPS])
    values[signals.STEPS_ACTIVE] = iterations if exact and iterations is not None else values[signals.DECODE_STEPS]


def _count_of_steps(iterations: FloatArray, steps: FloatArray) -> bool:
    """Whether the count of iterations is that of steps: no rank counts clearly more than fit into its time."""
    both = np.isfinite(iterations) & np.isfinite(steps)
    counted, fitting = np.where(both, iterations, 0.0).sum(axis=1), np.where(both, steps, 0.0).sum(axis=1)
    some = fitting > LEAST
    return bool(some.any()) and bool((counted[some] <= INFLATED * fitting[some]).all())


def _tokens(values: dict[str, FloatArray]) -> None:
    """ATTENTION_TOKENS: prompt tokens computed and tokens put out."""
    computed, generated = values.get(signals.PREFILL_TOKENS), values.get(vllm_metrics.GENERATED)
    if generated is not None:
        values[signals.ATTENTION_TOKENS] = generated if computed is None else generated + computed


def _accepted(values: dict[str, FloatArray]) -> None:
    """ACCEPT_LENGTH of an engine that speculates: a step gives a request what is accepted of its draft, and one token more."""
    drafts, accepted = values.get(vllm_metrics.DRAFTS), values.get(vllm_metrics.ACCEPTED)
    if drafts is None or accepted is None:
        return
    length = np.full(drafts.shape, np.nan)
    np.divide(accepted, drafts, out=length, where=np.isfinite(drafts) & (drafts > LEAST) & np.isfinite(accepted))
    values[signals.ACCEPT_LENGTH] = length + 1.0


def _without_kv(window: Window, values: dict[str, FloatArray]) -> list[Problem]:
    """Takes out the KV figures of ranks on which they are 0 while requests run: some models' pools do not report."""
    usage, running = values.get(signals.KV_USAGE), values.get(signals.RUNNING)
    if usage is None or running is None:
        return []
    seen = np.isfinite(usage).any(axis=1)
    dead: BoolArray = np.asarray(seen & ~(np.nan_to_num(usage) > 0).any(axis=1) & (np.nan_to_num(running) >= 1).all(axis=1))
    if not dead.any():
        return []
    for name in (signals.KV_USAGE, signals.RESIDENT_TOKENS):
        if name in values:
            values[name] = np.where(dead[:, None], np.nan, values[name])
    whose = name_ranks(rank for rank, off in zip(window.ranks, dead, strict=True) if off)
    what = f"kv_cache_usage_perc is 0 on {whose} while requests run: not reported, which is not empty"
    return [Problem(f"{window.engine.id} {PATHS[Source.VLLM_METRICS]}", what, "compare the KV cache usage in the engine's log")]


def _idle(values: Mapping[str, FloatArray], clock: Clock) -> dict[str, FloatArray]:
    """STEPS_IDLE: with experts, a rank without work runs a dummy batch in each step of the busiest one, and no page shows it; without, it
    stands still. Nothing when the clock is unknown."""
    active = values.get(signals.STEPS_ACTIVE)
    if active is None or clock is Clock.UNKNOWN:
        return {}
    seen = np.isfinite(active)
    if clock is Clock.NONE:
        return {signals.STEPS_IDLE: np.where(seen, 0.0, np.nan)}
    busiest = np.where(seen, active, 0.0).max(axis=0)
    return {signals.STEPS_IDLE: np.where(seen, busiest - active, np.nan)}
