"""The last minutes of one engine: readings in, windows out. Columnar, in bounded memory, no clock and no IO.

Every rank has its own sample times (a load snapshot is older than the reply that carries it, nodes are asked at different moments), so
a window first lays one grid for all signals and then reads every counter at the grid's edges between its own samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from collector import grid
from collector.engines.limits import name_ranks
from collector.model import Block, Engine, Facts, FloatArray, Problem, Reading, Source, Window
from collector.ring import Ring, is_counter
from collector.signals import CATALOGUE, Scope

MAX_EVENTS = 1024
"""Restarts remembered: the largest published layout (EP320) can restart three times."""

FLAPPING = 3
"""Restarts of one rank in a window from which two processes behind one URL are likelier than a rank that keeps dying."""


@dataclass(slots=True)
class _Track:
    """What one source of one node said."""

    source: Source
    node: str
    ranks: Ring
    engine: Ring  # its one column is rank -1
    speakers: dict[int, int] = field(default_factory=dict)
    newest: float = -np.inf
    problems: tuple[Problem, ...] = ()


class Store:
    """Readings of one engine, `depth_s` seconds deep.

    Per rank and source 4 bytes a page, and 8 for each counter and 4 for each gauge: 62 KiB for all of SGLang's signals, five minutes deep
    at a page a second, and 32 KiB with /metrics every 5 s.
    """

    def __init__(self, engine_id: str, kind: str, *, depth_s: float = 300.0, facts: Facts | None = None) -> None:
        """`facts`: known before the first page, whose own win."""
        self.engine_id = engine_id
        self.kind = kind
        self._depth_s = depth_s
        self._facts = facts or Facts()
        self._tracks: dict[tuple[Source, str], _Track] = {}
        self._restarts: deque[tuple[float, int, Source]] = deque(maxlen=MAX_EVENTS)

    def feed(self, reading: Reading) -> bool:
        """Take one reading; False, and nothing happens, when it is not newer than the last one of its node and source."""
        track = self._track(reading.source, reading.node)
        if not reading.arrived > track.newest:
            return False
        track.newest = reading.arrived
        track.problems = reading.problems
        track.speakers.update(reading.speakers)
        self._facts = self._facts.merged(reading.facts)
        per_rank = {rank: time for rank, time in reading.times.items() if rank >= 0}
        values = {name: found for name, found in reading.values.items() if any(rank in per_rank for rank in found)}
        whole = {name: found for name, found in reading.values.items() if -1 in found and -1 in reading.times}
        fallen = track.ranks.add(reading.arrived, per_rank, values)
        if whole or track.engine.columns:
            track.engine.add(reading.arrived, {-1: reading.times[-1]} if whole else {}, whole)
        self._restarts.extend((reading.arrived, rank, reading.source) for rank in fallen)
        return True

    def feed_block(self, block: Block) -> None:
        """Take many readings at once, with the result of feeding them one by one."""
        track = self._track(block.source, block.node)
        after = block.arrived > track.newest
        if not after.any():
            return
        arrived = block.arrived[after]
        track.newest = float(arrived[-1])
        track.problems = block.problems
        track.speakers.update(block.speakers)
        self._facts = self._facts.merged(block.facts)
        fallen = track.ranks.extend(arrived, block.ranks, block.times[after], {name: found[after] for name, found in block.values.items()})
        whole = {name: found[after, None] for name, found in block.whole.items()}
        known = np.isfinite(np.hstack(list(whole.values()))).any(axis=1) if whole else np.zeros(len(arrived), dtype=bool)
        if known.any() or track.engine.columns:
            first = 0 if track.engine.columns else int(known.argmax())
            times = np.where(known, arrived, np.nan)[first:, None]
            track.engine.extend(arrived[first:], (-1,), times, {name: found[first:] for name, found in whole.items()})
        self._restarts.extend((when, rank, block.source) for when, rank in fallen)

    def _track(self, source: Source, node: str) -> _Track:
        found = self._tracks.get((source, node))
        if found is None:
            found = self._tracks[source, node] = _Track(source, node, Ring(self._depth_s), Ring(self._depth_s))
        return found

    @property
    def newest(self) -> float | None:
        """Arrival of the newest page; None before the first."""
        return max((track.newest for track in self._tracks.values()), default=None)

    def latest(self, since: float) -> dict[str, dict[int, float]]:
        """The newest value of each signal of the catalogue on each rank (-1: the engine), counters as if never reset. Pages older than
        `since`, unix seconds, say nothing: a source that is silent has no value, which is not its last one and not 0."""
        found: dict[str, dict[int, float]] = {}
        said: dict[tuple[str, int], int] = {}  # the process that holds it
        for track in (track for track in self._tracks.values() if track.newest >= since):
            for ring in (track.ranks, track.engine):
                for signal in (signal for signal in ring.signals if signal in CATALOGUE):
                    values = ring.latest(signal)
                    for rank, k in ring.columns.items():
                        speaker = track.speakers.get(rank, 0)
                        if np.isfinite(values[k]) and speaker <= said.get((signal, rank), speaker):
                            said[signal, rank] = speaker
                            found.setdefault(signal, {})[rank] = float(values[k])
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(track.ranks.nbytes + track.engine.nbytes for track in self._tracks.values())

    def window(self, start: float, end: float, step: float | None = None) -> Window:
        """What was observed between two unix times, clamped to what there are samples of, in intervals of `step` seconds.

        Without a step the intervals are about as long as the slowest source's median interval, at least 1 s. A window without intervals
        (one edge) means that fewer than two samples lie in the span.
        """
        tracks = [track for track in self._tracks.values() if track.ranks.columns or track.engine.columns]
        default = max([grid.MIN_STEP_S, *(self._intervals(tracks).values())])
        spans = [span for track in tracks for span in _spans(track, start, end)]
        if spans:
            edges = grid.lay(start, end, grid.GAP * default, spans, step, default)
        else:
            edges = np.array([end if np.isfinite(end) else self.newest or 0.0])
        until = float(edges[-1]) + grid.GAP * default
        ranks = _alive(tracks, float(edges[0]), until)
        values = _table(tracks, ranks, edges) if len(edges) > 1 else {}
        return Window(
            engine=Engine(self.engine_id, self.kind, self._facts),
            edges=edges,
            ranks=ranks,
            values=values,
            scrapes=sum(int(np.count_nonzero((t.ranks.arrived() >= edges[0]) & (t.ranks.arrived() <= until))) for t in tracks),
            problems=tuple(dict.fromkeys(self._problems(tracks, ranks, edges))),
        )

    def _intervals(self, tracks: list[_Track]) -> dict[Source, float]:
        """Median seconds between pages of each source, its slowest node's."""
        found: dict[Source, float] = {}
        for track in tracks:
            if (interval := track.ranks.interval) is not None:
                found[track.source] = max(interval, found.get(track.source, 0.0))
        return found

    def _problems(self, tracks: list[_Track], ranks: tuple[int, ...], edges: FloatArray) -> Iterator[Problem]:
        for track in self._tracks.values():
            yield from track.problems
        if len(edges) < 2:
            seen = sum(len(track.ranks.arrived()) for track in tracks)
            yield Problem(self.engine_id, f"{seen} pages in the time asked for; a rate needs two of one source", "wait for the next scrape")
        newest = max((track.newest for track in tracks), default=float(edges[-1]))
        yield from self._restarted(float(edges[0]), newest)
        yield from _rivals(tracks)
        for track in tracks:
            yield from _life(track, newest, float(edges[0]))
        expected = self._facts.expected_ranks
        if expected is not None and ranks and (absent := set(range(expected)) - set(ranks)):
            then = "name every node of the engine, node 0 first, and look whether these ranks run"
            yield Problem(self.engine_id, f"{name_ranks(absent)} of {expected} not seen", then)

    def _restarted(self, start: float, end: float) -> Iterator[Problem]:
        """Counters that fell since `start`, told once per moment; ranks on which they fall again and again apart."""
        falls: dict[tuple[Source, int], list[float]] = {}
        for when, rank, source in self._restarts:
            if start <= when <= end:
                falls.setdefault((source, rank), []).append(when)
        once: dict[tuple[Source, str], list[int]] = {}
        for (source, rank), times in falls.items():
            if len(times) < FLAPPING:
                once.setdefault((source, clock(times[-1])), []).append(rank)
            else:
                what = f"the counters of rank {rank} fell {len(times)} times, last at {clock(times[-1])}"
                yield Problem(source.value, what, "if two engines answer at one URL, give each its own")
        for (source, moment), ranks in once.items():
            yield Problem(source.value, f"{name_ranks(ranks)} restarted at {moment}: counters fell", "they count from zero since then")


def clock(when: float) -> str:
    """Unix seconds as ISO-8601 UTC, for messages."""
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


def _spans(track: _Track, start: float, end: float) -> Iterator[tuple[float, float]]:
    """First and last sample time of each series of a track, of those around and inside [start, end]."""
    arrived = track.ranks.arrived()
    yield from _span(arrived, start, end)
    for ring in (track.ranks, track.engine):
        if any(is_counter(signal) for signal in ring.signals):
            times = ring.times()
            for k in range(times.shape[1]):
                yield from _span(times[np.isfinite(times[:, k]), k], start, end)


def _span(times: FloatArray, start: float, end: float) -> Iterator[tuple[float, float]]:
    first, last = np.searchsorted(times, start, side="right") - 1, np.searchsorted(times, end, side="left")
    inside = times[max(first, 0) : last + 1]
    if len(inside) > 1 and inside[-1] >= start and inside[0] <= end:  # one sample makes no rate, and must not trim the others
        yield float(inside[0]), float(inside[-1])


def _rivals(tracks: list[_Track]) -> Iterator[Problem]:
    """Ranks that two nodes claim with equal right."""
    claims: dict[tuple[Source, int, int], list[str]] = {}
    for track in tracks:
        for rank, speaker in track.speakers.items():
            claims.setdefault((track.source, rank, speaker), []).append(track.node)
    rivals: dict[tuple[Source, str], list[int]] = {}
    for (source, rank, _), nodes in claims.items():
        if len(nodes) > 1:
            rivals.setdefault((source, " and ".join(nodes)), []).append(rank)
    for (source, those), ranks in rivals.items():
        then = "these are two engines, or one node under two names; give each engine as a target of its own"
        yield Problem(source.value, f"{those} both report {name_ranks(ranks)}", then)


def _alive(tracks: list[_Track], start: float, end: float) -> tuple[int, ...]:
    """Ranks that were on some page that arrived in [start, end]."""
    alive: set[int] = set()
    for track in tracks:
        arrived = track.ranks.arrived()
        seen = np.count_nonzero(track.ranks.here()[(arrived >= start) & (arrived <= end)], axis=0)
        alive.update(rank for rank, k in track.ranks.columns.items() if seen[k])
    return tuple(sorted(alive))


def _table(tracks: list[_Track], ranks: tuple[int, ...], edges: FloatArray) -> dict[str, FloatArray]:
    """Signal -> (R, T), or (1, T) for one of the engine; signals never observed on the grid are left out."""
    shape = (len(ranks), len(edges) - 1)
    table: dict[str, FloatArray] = {}
    said: dict[str, FloatArray] = {}  # signal -> (R,) the lowest process that holds it, for each rank
    for track in tracks:
        columns = np.array([track.ranks.columns.get(rank, -1) for rank in ranks], dtype=int)
        speakers = np.array([track.speakers.get(rank, 0) for rank in ranks], dtype=float)
        for signal, (found, held) in on_grid(track.ranks, edges).items():
            mine = (columns >= 0) & held[columns] & (speakers < said.setdefault(signal, np.full(shape[0], np.inf)))
            said[signal][mine] = speakers[mine]
            table.setdefault(signal, np.full(shape, np.nan))[mine] = found[columns[mine]]
        for signal, (found, _) in on_grid(track.engine, edges).items():
            if signal in CATALOGUE and CATALOGUE[signal].scope is Scope.ENGINE:
                table[signal] = found
    return {signal: found for signal, found in table.items() if np.isfinite(found).any()}


def on_grid(ring: Ring, edges: FloatArray) -> dict[str, tuple[FloatArray, npt.NDArray[np.bool_]]]:
    """Signal -> its (columns, T) values, and (columns,) whether it was ever seen there; nothing before the second page."""
    interval = ring.interval
    if interval is None:
        return {}
    raw = {signal: ring.values(signal) for signal in ring.signals}
    counters = [signal for signal in raw if is_counter(signal)]
    found = {name: grid.means(ring.arrived(), raw[name], edges, interval) for name in raw if name not in counters}
    if counters:
        found |= zip(counters, grid.rates(ring.times(), np.stack([raw[name] for name in counters]), edges, interval), strict=True)
    return {name: (found[name], np.asarray(np.isfinite(values).any(axis=0))) for name, values in raw.items()}


def _life(track: _Track, newest: float, start: float) -> Iterator[Problem]:
    """Ranks that appeared or vanished on a track, or the track itself that went silent, since `start`."""
    arrived, interval = track.ranks.arrived(), track.ranks.interval
    where = f"{track.source.value} of {track.node}"
    if interval is None or not len(arrived):
        return
    reach = grid.GAP * interval
    if arrived[-1] < newest - reach:
        yield Problem(where, f"no page since {clock(float(arrived[-1]))}", "what it would say after that is unknown")
    here = track.ranks.here()
    came: dict[str, list[int]] = {}
    went: dict[str, list[int]] = {}
    for rank, k in track.ranks.columns.items():
        present = arrived[here[:, k]]
        if not len(present):
            continue
        if present[0] > max(arrived[0] + reach, start):
            came.setdefault(clock(float(present[0])), []).append(rank)
        if present[-1] < arrived[-1] - reach:
            went.setdefault(clock(float(present[-1])), []).append(rank)
    for when, ranks in came.items():
        yield Problem(where, f"{name_ranks(ranks)} appeared at {when}", "unknown before that")
    for when, ranks in went.items():
        yield Problem(where, f"{name_ranks(ranks)} is gone since {when}", "look whether it runs")
