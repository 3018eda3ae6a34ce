"""SGLang: where its pages are, what they mean in canonical signals, and what only two pages together can tell. Pure.

Raw names and version differences are tables: `sglang_loads.FIELDS` for /v1/loads, `sglang_metrics.ROWS` for /metrics. The source of every
fact is SGLang's own code, 0.5.9 to 0.5.23; see docs/signals.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from collector import signals
from collector.engines import sglang_info, sglang_loads, sglang_metrics
from collector.engines.limits import name_ranks
from collector.errors import SourceError
from collector.exposition import Parser
from collector.model import FloatArray, Page, Problem, Reading, Source, Window

BoolArray: TypeAlias = npt.NDArray[np.bool_]

PATHS: dict[Source, str] = {
    Source.SGLANG_LOADS: "/v1/loads",
    Source.SGLANG_METRICS: "/metrics",
    Source.SGLANG_SERVER_INFO: "/server_info",
}
"""URL path of each source, below a node's base URL."""


class Reader:
    """Reads the pages of one engine. What it remembers of a node's last page makes it fast and never changes a result."""

    def __init__(self) -> None:
        self._parsers: dict[str, Parser] = {}
        self._readers: dict[Source, Callable[[Page, str], Reading]] = {
            Source.SGLANG_LOADS: sglang_loads.read,
            Source.SGLANG_METRICS: self._metrics,
            Source.SGLANG_SERVER_INFO: sglang_info.read,
        }

    def read(self, page: Page) -> Reading:
        """One page in canonical terms. Beside the catalogue's signals a reading may hold helper counters (their names begin with `_`)
        that only `adjust` uses. Raises SourceError for a page that cannot be what its source says, and for a page that is a failure.
        """
        url = page.node + PATHS[page.source]
        if page.error is not None:
            raise SourceError(page.error)
        if page.status != 200:
            raise SourceError(f"{url}: HTTP {page.status}")
        try:
            return self._readers[page.source](page, url)
        except SourceError as error:
            message = str(error)
            raise SourceError(message if url in message else f"{url}: {message}") from None

    def _metrics(self, page: Page, url: str) -> Reading:
        if page.node not in self._parsers:
            self._parsers[page.node] = sglang_metrics.parser()
        return sglang_metrics.read(page, url, self._parsers[page.node])


def read(page: Page) -> Reading:
    """One page in canonical terms, as `Reader.read`; for a page on its own."""
    return Reader().read(page)


@dataclass(frozen=True, slots=True)
class _Switch:
    """Counters that SGLang shows but does not move unless it was started in a certain way."""

    tell: tuple[str, ...]  # when all of these stand still on a rank while the engine works, the switch is off there
    drop: tuple[str, ...]  # then these say nothing
    what: str
    then: str


_SWITCHES: tuple[_Switch, ...] = (
    _Switch(
        (signals.STEPS_ACTIVE, signals.STEPS_IDLE),
        (
            signals.STEPS_ACTIVE,
            signals.STEPS_IDLE,
            signals.ATTENTION_TOKENS,
            signals.ATTENTION_PAIRS,
            signals.IMBALANCE_PAIRS,
            signals.SYNC_WAIT,
        ),
        "the dp_attention counters stand still while tokens are computed",
        "set SGLANG_ENABLE_METRICS_DP_ATTENTION=1 in the environment of every scheduler (with one DP rank SGLang records none)",
    ),
    _Switch(
        (signals.FORWARD_TIME,),
        (signals.FORWARD_TIME,),
        "forward_execution_seconds stands still while the engine works",
        "set SGLANG_ENABLE_METRICS_DEVICE_TIMER=1 in the environment of every scheduler",
    ),
    _Switch(
        (signals.RECV_WAIT, sglang_metrics.STAGES),
        (signals.RECV_WAIT, sglang_metrics.STAGES),
        "scheduler_stage_seconds stands still while the engine works",
        "the scheduler's stages are not reported; look at its log",
    ),
    _Switch(
        (signals.SCHEDULER_CPU,),
        (signals.SCHEDULER_CPU,),
        "scheduler_process_cpu_seconds stands still while the engine works",
        "the scheduler's CPU time is not reported; read it from the process itself",
    ),
)

_PROGRESS = (signals.STEPS_ACTIVE, signals.DECODE_STEPS, signals.PREFILL_TOKENS, sglang_metrics.TOKENS)
"""Counters that move when a rank computes; any of them on any rank shows that the engine works."""


def adjust(window: Window) -> Window:
    """The window with what only a comparison of two pages tells: signals that exist but stand still are dropped, per rank, with a
    Problem that names the switch, and told in `frozen`; SCHEDULER_WORK is made of the stages less the sync wait inside them, ACCEPT_LENGTH
    of the tokens and rows of decode steps; helper counters are gone.
    """
    working = _working(window)
    values = dict(window.values)
    problems = list(window.problems)
    frozen: dict[str, tuple[int, ...]] = {}
    where = f"{window.engine.id} {PATHS[Source.SGLANG_METRICS]}"
    for switch in _SWITCHES:
        off = _stands_still(values, switch.tell, len(window.ranks)) & working
        if off.any():
            for name in switch.drop:
                if name in values:
                    if name in signals.CATALOGUE:
                        there = off & np.isfinite(values[name]).any(axis=1)
                        frozen[name] = tuple(rank for rank, still in zip(window.ranks, there, strict=True) if still)
                    values[name] = np.where(off[:, None], np.nan, values[name])
            whom = "" if off.all() else f" on {name_ranks(rank for rank, still in zip(window.ranks, off, strict=True) if still)}"
            problems.append(Problem(where, switch.what + whom, switch.then))
    problems += _unscraped(window, where)
    stages, sync = values.get(sglang_metrics.STAGES), values.get(signals.SYNC_WAIT)
    if stages is not None and sync is not None:
        values[signals.SCHEDULER_WORK] = _difference(stages, sync, np.diff(window.edges))
    rows, tokens = values.get(sglang_loads.ROWS), values.get(sglang_loads.TOKENS)
    if rows is not None and tokens is not None:
        values[signals.ACCEPT_LENGTH] = _ratio(tokens, rows)
    kept = {name: found for name, found in values.items() if not name.startswith("_") and np.isfinite(found).any()}
    return replace(window, values=kept, problems=tuple(problems), frozen={name: ranks for name, ranks in frozen.items() if ranks})


def _working(window: Window) -> bool:
    """Whether something was computed in at least half of the intervals: counters that stand still then are off, not idle."""
    shape = (len(window.ranks), len(window.edges) - 1)
    moved = np.zeros(shape[1], dtype=bool)
    for name in _PROGRESS:
        found = window.values.get(name)
        if found is not None:
            moved |= (np.nan_to_num(found) > 0).any(axis=0)
    return bool(shape[1]) and bool(moved.mean() >= 0.5)


def _stands_still(values: dict[str, FloatArray], tell: tuple[str, ...], ranks: int) -> BoolArray:
    """(R,) whether some of `tell` were observed on a rank and none of them moved."""
    seen, moved = np.zeros(ranks, dtype=bool), np.zeros(ranks, dtype=bool)
    for found in (values[name] for name in tell if name in values):
        seen |= np.isfinite(found).any(axis=1)
        moved |= (np.nan_to_num(found) > 0).any(axis=1)
    return seen & ~moved


def _unscraped(window: Window, where: str) -> list[Problem]:
    """Ranks known from the load snapshots whose node's /metrics nobody reads."""
    known, stages = window.values.get(signals.RUNNING), window.values.get(sglang_metrics.STAGES)
    if known is None or stages is None:
        return []
    blind: BoolArray = np.asarray(np.isfinite(known).any(axis=1) & ~np.isfinite(stages).any(axis=1))
    ranks = [rank for rank, unseen in zip(window.ranks, blind, strict=True) if unseen]
    then = "name every node of the engine, node 0 first: host0:30000,host1:30000"
    return [Problem(where, f"no counters of {name_ranks(ranks)}: each node shows its own ranks only", then)] if ranks else []


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """(R, T) of two rates; NaN where the divisor is unknown or nothing happened."""
    out: FloatArray = np.full(part.shape, np.nan)
    np.divide(part, whole, out=out, where=np.isfinite(part) & np.isfinite(whole) & (whole > 0))
    return out


def _difference(whole: FloatArray, part: FloatArray, lengths: FloatArray) -> FloatArray:
    """(R, T) rate of `whole` less that of the `part` inside it, never negative.

    SGLang flushes stage seconds about once a second but the sync wait at once, so in a single interval the part can exceed the whole.
    Cutting each interval at 0 would add up to far too much work; the running maximum of the accumulated difference cannot, it only
    lags by one flush.
    """
    seen = np.isfinite(whole) & np.isfinite(part)
    net = np.cumsum(np.where(seen, whole - part, 0.0) * lengths, axis=1)
    level = np.maximum.accumulate(np.maximum(net, 0.0), axis=1)
    return np.where(seen, np.diff(level, axis=1, prepend=0.0) / lengths, np.nan)
