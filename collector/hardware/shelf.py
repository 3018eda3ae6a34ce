"""The last minutes of an engine's machines: pages of cards and processes in, an engine's window with their signals out. No clock, no IO.

Cards are kept as cards, and joined to ranks only when a window is made: by then the engine's pages have said how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from collector import signals
from collector.engines.limits import name_ranks
from collector.errors import SourceError
from collector.exposition import Parser
from collector.hardware import cards, dcgm, join, nvml, procfs
from collector.hardware.cards import Card, Look
from collector.hardware.titles import Place
from collector.model import FloatArray, Page, Problem, Source, Window
from collector.ring import Ring
from collector.store import clock, on_grid

SOURCES = frozenset({Source.DCGM, Source.NVML, Source.PROCFS})

_MAX_PLACES = 1024
"""Places of processes that are kept: 256 are on a page at once, and an engine that is restarted in another layout takes others."""

_COMPARED = frozenset({signals.RUN_QUEUE_DELAY, signals.INVOLUNTARY_SWITCHES})
"""What a process shows by its nature too, not only by its node's: vLLM's scheduling process polls its workers, and on two cores that others
used all of them waited 0.9 s per second, a starved worker 0.4 and its peer 0.1."""

_CARDS = (Source.DCGM, Source.NVML)  # where both saw a signal of a rank, the first speaks
_COMBINE = {"min": np.fmin.reduce, "max": np.fmax.reduce, "sum": np.add.reduce}


@dataclass(slots=True)
class _Track:
    """What one page of one node said: columns are numbers of `cards`, or of `places`."""

    source: Source
    node: str
    ring: Ring
    parser: Parser | None
    cards: dict[tuple[str, int], int] = field(default_factory=dict)  # (host, index) -> column
    latest: dict[int, Card] = field(default_factory=dict)
    places: dict[Place, int] = field(default_factory=dict)  # a process of a rank -> column
    owners: dict[int, int] = field(default_factory=dict)  # process -> rank
    problems: tuple[Problem, ...] = ()
    newest: float = -np.inf
    falls: list[tuple[float, int]] = field(default_factory=list)


def _means(rows: FloatArray) -> FloatArray:
    """(R,) means over (R, T) of what was observed; NaN for a row that was not."""
    seen = np.isfinite(rows)
    held = seen.sum(axis=1)
    return np.where(held > 0, np.where(seen, rows, 0.0).sum(axis=1) / np.maximum(held, 1), np.nan)


def _farthest(delays: FloatArray) -> int:
    """The place of (K, R, T) run-queue delays in which one rank's mean is farthest above its peers' median."""
    above = []
    for means in map(_means, delays):
        seen = np.sort(means[np.isfinite(means)])
        above.append(float(seen[-1] - np.median(seen[:-1])) if len(seen) > 1 else -1.0)
    return int(np.argmax(above))


class Shelf:
    """Pages of one engine's machines. `kind`: the engine's, once its pages have told; `asked`: the user's own join of ranks to cards."""

    def __init__(self, kind: str, *, depth_s: float, asked: Mapping[int, tuple[str, ...]] | None = None) -> None:
        self.kind = kind
        self._depth_s = depth_s
        self._asked = asked or {}
        self._tracks: dict[tuple[Source, str], _Track] = {}

    def feed(self, page: Page) -> None:
        """Take one page, in order of arrival for each node and source. Raises SourceError for one that cannot be read."""
        if page.error is not None or page.status != 200:
            raise SourceError(page.error or f"{page.node}: HTTP {page.status}")
        key = (page.source, page.node)
        track = self._tracks.get(key)
        if track is None:
            parser = dcgm.parser() if page.source is Source.DCGM else None
            track = self._tracks[key] = _Track(page.source, page.node, Ring(self._depth_s), parser)
        if not page.arrived > track.newest:
            return
        if page.source is Source.PROCFS:
            self._take_processes(track, page)
        else:
            self._take_cards(track, page)
        track.newest = page.arrived

    def _take_processes(self, track: _Track, page: Page) -> None:
        look = procfs.read(page, self.kind)
        track.problems = look.problems
        track.owners = {process.pid: place.rank for place, process in look.found.items()}
        far = self._far(track.owners, look)
        tables = {**look.values, signals.FAR_FROM_CARD: far} if far else look.values
        for place in look.found:
            if place in track.places or len(track.places) < _MAX_PLACES:
                track.places.setdefault(place, len(track.places))
        column = track.places
        here = {column[place]: page.arrived for place in look.found if place in column}
        track.ring.add(
            page.arrived, here, {name: {column[p]: value for p, value in found.items() if p in column} for name, found in tables.items()}
        )

    def _far(self, owners: Mapping[int, int], look: procfs.Look) -> dict[Place, float]:
        """For each rank's first process, whether it ran on another NUMA node than its card."""
        first = look.first()
        nodes = self._card_nodes(owners, look.cards)
        places = {process.pid: place for place, process in look.found.items()}
        return {places[first[rank].pid]: float(first[rank].numa != node) for rank, node in nodes.items() if first[rank].numa is not None}

    def _card_nodes(self, owners: Mapping[int, int], nodes: Mapping[str, int]) -> dict[int, int]:
        """Local rank -> NUMA node of its card: by process, else by order if this node's cards alone were seen, one for each local rank."""
        tracks = self._of(Source.NVML) or self._of(Source.DCGM)
        seen = [card for track in tracks for _, card in sorted(track.latest.items())]
        buses = {owners[pid]: card.bus for card in seen for pid in card.pids if pid in owners}
        ranks = sorted(set(owners.values()))
        if not buses and len({card.host for card in seen}) == 1 and len(seen) == len(ranks):
            buses = dict(zip(ranks, [card.bus for card in sorted(seen, key=lambda card: card.index)], strict=True))
        return {rank: nodes[bus] for rank, bus in buses.items() if bus in nodes}

    def _take_cards(self, track: _Track, page: Page) -> None:
        look: Look = dcgm.read(page, track.parser) if track.parser is not None else nvml.read(page)
        track.problems = look.problems
        values: dict[str, dict[int, float]] = {}
        here: dict[int, float] = {}
        for card in look.cards:
            key = (card.host, card.index)
            if key not in track.cards and len(track.cards) >= cards.MAX_CARDS:
                continue
            column = track.cards.setdefault(key, len(track.cards))
            track.latest[column] = card
            here[column] = page.arrived
            for name, value in card.values.items():
                values.setdefault(name, {})[column] = value
        fallen = track.ring.add(page.arrived, here, values)
        track.falls = [*track.falls, *((page.arrived, column) for column in fallen)][-cards.MAX_CARDS :]

    def joined(self, window: Window) -> Window:
        """The window with what its ranks' cards and processes said on its grid, and with what is in the way of that."""
        if not self._tracks or not window.ranks:
            return window
        values = dict(window.values)
        problems = [problem for track in self._tracks.values() for problem in track.problems]
        owners: dict[int, int] = {}
        for track in self._tracks.values():
            owners |= track.owners
        for source in _CARDS:
            found = self._join(window, source, owners)
            problems += found.problems
            problems += self._restarts(window, source, found)
            if len(window.edges) > 1:
                for name, table in self._cards_of(window, source, found).items():
                    held = values.setdefault(name, np.full(table.shape, np.nan))
                    values[name] = np.where(np.isfinite(held), held, table)
        if len(window.edges) > 1:
            values |= self._processes(window)
        seen = {name: table for name, table in values.items() if np.isfinite(table).any()}
        return replace(window, values=seen, problems=(*window.problems, *dict.fromkeys(problems)))

    def _of(self, source: Source) -> list[_Track]:
        return [track for track in self._tracks.values() if track.source is source]

    def _numbered(self, source: Source) -> Iterator[tuple[_Track, int, join.Seen]]:
        """Every card of a source, with a number that tells it from the others'."""
        for place, track in enumerate(self._of(source)):
            for _, column in sorted(track.cards.items(), key=lambda item: (item[0][0], item[0][1])):
                number = place * cards.MAX_CARDS + column
                yield track, column, join.Seen(number, track.node, track.latest[column])

    def _join(self, window: Window, source: Source, owners: Mapping[int, int]) -> join.Join:
        facts = window.engine.facts
        return join.join(
            [seen for _, _, seen in self._numbered(source)],
            where=source.value,
            engine=window.engine.id,
            ranks=facts.expected_ranks or len(window.ranks),
            cards=facts.cards,
            asked=self._asked,
            owners=owners,
        )

    def _cards_of(self, window: Window, source: Source, found: join.Join) -> dict[str, FloatArray]:
        """Signal -> (R, T) of the ranks' cards."""
        owner = {number: rank for rank, numbers in found.cards.items() for number in numbers}
        rows: dict[str, dict[int, list[FloatArray]]] = {}
        grids = {id(track): on_grid(track.ring, window.edges) for track in self._of(source)}
        for track, column, seen in self._numbered(source):
            rank = owner.get(seen.number)
            if rank is None:
                continue
            for name, (table, held) in grids[id(track)].items():
                place = track.ring.columns[column]
                if held[place]:
                    rows.setdefault(name, {}).setdefault(rank, []).append(table[place])
        shape = (len(window.ranks), len(window.edges) - 1)
        out: dict[str, FloatArray] = {}
        for name, by_rank in rows.items():
            out[name] = np.full(shape, np.nan)
            for row, rank in enumerate(window.ranks):
                if rank in by_rank:
                    out[name][row] = _COMBINE[cards.COMBINE.get(name, "max")](by_rank[rank])
        return out

    def _processes(self, window: Window) -> dict[str, FloatArray]:
        """Signal -> (R, T). Of a rank's processes the worst one counts, as its step ends with the last; CPU time is that of the first.

        Waiting for a CPU is compared like with like: a process that polls, and yields between two looks, always waits on a busy node. So of
        the processes in the same place of their ranks those count, for all ranks, whose mean delay is farthest above the other ranks'.
        """
        out: dict[str, FloatArray] = {}
        for track in self._of(Source.PROCFS):
            grid = on_grid(track.ring, window.edges)
            chosen = None
            for name in sorted(grid, key=lambda one: one != signals.RUN_QUEUE_DELAY):
                table = self._by_place(track, window, *grid[name])
                if name == signals.RUN_QUEUE_DELAY:
                    chosen = _farthest(table)
                if name == signals.PROCESS_CPU:
                    found = table[0]
                elif name in _COMPARED and chosen is not None:
                    found = table[chosen]
                else:
                    found = np.fmax.reduce(table)
                held = out.setdefault(name, found)
                out[name] = np.where(np.isfinite(held), held, found)
        return out

    def _by_place(self, track: _Track, window: Window, table: FloatArray, held: npt.NDArray[np.bool_]) -> FloatArray:
        """(K, R, T) of the processes of each rank, first to last; NaN where a rank has fewer, at least one place."""
        own = {
            row: [
                column for place in sorted(track.places) if place.rank == rank and held[column := track.ring.columns[track.places[place]]]
            ]
            for row, rank in enumerate(window.ranks)
        }
        out = np.full((max(1, *map(len, own.values())), len(window.ranks), table.shape[1]), np.nan)
        for row, columns in own.items():
            out[: len(columns), row] = table[columns]
        return out

    def _restarts(self, window: Window, source: Source, found: join.Join) -> Iterator[Problem]:
        """Cards whose counters fell inside the window: a driver or node restarted, and what it had counted is no longer known."""
        owner = {number: rank for rank, numbers in found.cards.items() for number in numbers}
        moments: dict[float, list[int]] = {}
        for place, track in enumerate(self._of(source)):
            for when, column in track.falls:
                rank = owner.get(place * cards.MAX_CARDS + column)
                if rank is not None and window.start <= when:
                    moments.setdefault(when, []).append(rank)
        for when, ranks in moments.items():
            what = f"the error counters of the cards of {name_ranks(ranks)} fell at {clock(when)}: driver or node restarted"
            yield Problem(source.value, what, "they count from zero since then")
