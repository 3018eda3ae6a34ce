"""A log file into readings of each rank, and what is wrong with it. Pure: lines in, no IO and no clock.

A log is a partial source: it has requests, KV and throughput of each rank and no waits. Its lines come when an engine has something to
say, each rank in its own time, so each rank is a node of its own to the store. Nothing in it is trusted: a line is read as far as its form
is known, counted as unreadable when it should have been one, and passed over otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from collector import signals
from collector.engines.limits import MAX_RANKS
from collector.engines.vllm_metrics import GENERATED
from collector.logs import sglang_lines, vllm_lines
from collector.logs.line import Line, Stamp, writer_of
from collector.model import Problem, Reading, Source

LONGEST_LINE = 1 << 16
"""Bytes of a line that are looked at; the longest report seen in the field has 700."""

LULL = 3.0
"""Times the spacing of a rank's lines before from which the time between two of them was not all decoding: the throughput, a mean over that
time, then gives tokens and no step time. Lines come at equal numbers of steps, which differ far less from one report to the next."""

_MOST_RUNS = 64
"""Restarts in one file that are kept apart; after that a file holds days of them, and another engine is not looked for any more."""

_MARKS = (*sglang_lines.MARKS, *vllm_lines.MARKS)


@dataclass(slots=True)
class _Rank:
    """What a rank's lines have added up to."""

    part: int
    at: float  # unix seconds of its last line
    rated: float | None = None  # of its last line with a throughput
    spacing: float | None = None  # s between its last two of those
    totals: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    writer: str = ""
    gone: set[str] = field(default_factory=set)  # writers after which another one wrote

    def takes(self, writer: str) -> bool:
        """Whether this writer speaks for the rank: a new one is the engine restarted, an earlier one that comes again is another engine."""
        if writer in self.gone:
            return False
        if writer != self.writer and self.writer and len(self.gone) < _MOST_RUNS:
            self.gone.add(self.writer)
        self.writer = writer or self.writer
        return True


@dataclass(slots=True)
class Log:
    """The readings of one engine's log, fed line by line in the order of the file. `name` is what messages call it; `year` stands in where
    lines have none, and the next one is taken when a month is followed by an earlier one."""

    name: str
    year: int
    source: Source | None = None
    lines: int = 0  # reports that were read
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _month: int = 0
    _unread: int = 0
    _unranked: int = 0
    _foreign: int = 0
    _backwards: int = 0
    _mixed: int = 0
    _named: bool = False  # some line names its rank

    def readings(self, lines: Iterable[bytes]) -> Iterator[Reading]:
        """Readings in order, one for each rank and second; what is under way at the end is among them."""
        for raw in lines:
            text = raw[:LONGEST_LINE].decode(errors="replace")
            if not any(mark in text for mark in _MARKS):
                continue
            parsed = sglang_lines.parse(text) or vllm_lines.parse(text)
            line = replace(parsed, writer=writer_of(text)) if parsed else None
            at = self._time(line.stamp) if line else None
            if line is None or at is None:
                self._unread += 1
            elif self.source not in {None, line.source}:
                self._foreign += 1
            else:
                self.source = line.source
                yield from self._take(line, at)
        for rank in list(self._ranks):
            yield self._said(rank)

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the lines read so far."""
        found = []
        if not self.lines:
            found.append(
                Problem(self.name, "no line of a batch or of statistics was found", "give a log of SGLang's or vLLM's own, INFO level")
            )
        for count, what, then in (
            (self._unread, "reports could not be read: cut off, or in a form that is not known", "the others were read"),
            (self._foreign, "reports of another engine stand between them", "give each engine's log by itself"),
            (
                self._mixed,
                "reports are by another process than those around them: two engines in one file",
                "give each engine's log by itself",
            ),
            (self._unranked, "reports without a rank beside others that have one", "they belong to no rank and were left out"),
            (self._backwards, "reports are older than the rank's report before", "give rotated files oldest first, and one run at a time"),
        ):
            if count:
                found.append(Problem(self.name, f"{count} {what}", then))
        if self.lines and self.source is Source.VLLM_LOG:
            missing = "vLLM leaves an engine without throughput out of its log, even one that hangs"
            found.append(Problem(self.name, missing, "scrape /metrics to see whether a silent engine stands or has nothing to do"))
        return tuple(found)

    def _take(self, line: Line, at: float) -> Iterator[Reading]:
        rank = line.rank
        if rank is None:
            if self._named:
                self._unranked += 1
                return
            rank = 0
        elif not self._named:
            self._named = True
            self._unranked += self.lines
            self._ranks.clear()
        known = self._ranks.get(rank)
        if known is None:
            if len(self._ranks) >= MAX_RANKS:
                return
            known = self._ranks[rank] = _Rank(line.part, at)
        if line.part != known.part:
            if line.part > known.part:
                return  # another process of the rank says the same
            known.part, known.rated = line.part, None
        if not known.takes(line.writer):
            self._mixed += 1
            return
        if at < known.at:
            self._backwards += 1
            return
        if at > known.at:
            yield self._said(rank)
        self.lines += 1
        self._add(known, line, at)

    def _add(self, known: _Rank, line: Line, at: float) -> None:
        known.gauges.update(line.gauges)
        adds = dict(line.adds)
        if line.rate is not None:
            since = at - known.rated if known.rated is not None else 0.0
            output = signals.ATTENTION_TOKENS if line.source is Source.SGLANG_LOG else GENERATED
            adds[output] = line.rate * since
            if line.tokens_a_step and known.spacing is not None and since <= LULL * known.spacing:
                adds |= {signals.DECODE_TIME: since, signals.DECODE_STEPS: since * line.rate / line.tokens_a_step}
            known.spacing, known.rated = since or known.spacing, at
        for name, growth in adds.items():
            known.totals[name] = known.totals.get(name, 0.0) + growth
        if line.source is Source.SGLANG_LOG and signals.PREFILL_TOKENS in line.adds:
            computed = line.adds[signals.PREFILL_TOKENS]
            known.totals[signals.ATTENTION_TOKENS] = known.totals.get(signals.ATTENTION_TOKENS, 0.0) + computed
        known.at = at

    def _said(self, rank: int) -> Reading:
        known = self._ranks[rank]
        values = {name: {rank: value} for name, value in (known.totals | known.gauges).items()}
        known.gauges = {}
        source = self.source or Source.SGLANG_LOG
        return Reading(self.name, f"{self.name} rank {rank}", source, known.at, {rank: known.at}, values)

    def _time(self, stamp: Stamp) -> float | None:
        """Unix seconds of a stamp, taken as UTC: only differences matter. None for a date that does not exist."""
        if stamp.year is None and stamp.month < self._month - 6:
            self.year += 1
        self._month = stamp.month
        try:
            return datetime(stamp.year or self.year, *stamp[1:], tzinfo=UTC).timestamp()
        except ValueError:
            return None
