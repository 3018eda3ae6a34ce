"""Which queries bring how much, in which portions, and what comes back joined to whole series. IO only through `Api`.

A server that hands out chunks is asked for those (decision 0026), any other one, and for what comes with labels that nobody knows, in JSON.
A portion is as many samples as a reply of some 20 MB holds. A portion that the server refuses as too large, or does not manage in time, is
halved and asked for again, so that no limit of any server has to be known.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import TypeAlias

import numpy as np

from collector.prometheus.api import Api
from collector.prometheus.errors import PrometheusError, TooMuchError, UnreachableError
from collector.prometheus.matchers import Matcher
from collector.prometheus.matrix import Series
from collector.prometheus.queries import Query

_Ask: TypeAlias = Callable[[float, float], Awaitable[list[Series]]]

PORTION = 500_000
"""Samples of one reply: 37 bytes each, 18 MB. A hundredth of Prometheus' limit of 50 million a query."""

STREAMED = 4 * PORTION
"""The same of chunks: at most 9 bytes each."""

SHORTEST_S = 30.0
"""Span of a portion that is not halved again: two scrapes at 15 s. A server that cannot give that much is told of as it is."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of one query: whole series, or those of the parts that came, with what is missing."""

    query: Query
    series: tuple[Series, ...]
    failed: tuple[PrometheusError, ...] = ()


async def fetch(
    api: Api, wanted: Mapping[Query, int], known: Known, points: float, matchers: Sequence[Matcher], start: float, end: float
) -> list[Fetched]:
    """Every wanted query between two unix times. `wanted`: query to how many series it has; `points`: samples of one series in that time.

    A query that fails is told in its Fetched. Raises UnreachableError when the server is no longer there.
    """
    streams = await api.streams()
    tasks: list[asyncio.Task[Fetched]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for query, count in wanted.items():
                asked = _Asked(api, query, tuple(matchers), count * points)
                tasks.append(group.create_task(_streamed(asked, known, start, end) if streams else _told(asked, start, end)))
    except* UnreachableError as gone:
        raise gone.exceptions[0] from None
    return [task.result() for task in tasks]


class Known:
    """The label sets of all series that there are, to tell those of a remote read, which has the server's external labels on them."""

    def __init__(self, series: Sequence[Mapping[str, str]]) -> None:
        self._sets = {hash(frozenset(labels.items())) for labels in series}
        self._names = {name for labels in series for name in labels}

    def own(self, series: Sequence[Series]) -> list[Series] | None:
        """The series under their own labels; None when it cannot be told which labels are external."""
        beside = {name for one in series for name in one.labels} - self._names
        if beside:
            kept = [{name: value for name, value in one.labels.items() if name not in beside} for one in series]
            series = [Series(labels, one.times, one.values) for labels, one in zip(kept, series, strict=True)]
        return list(series) if all(hash(frozenset(one.labels.items())) in self._sets for one in series) else None


@dataclass(frozen=True, slots=True)
class _Asked:
    """One query to a server. `samples`: about how many it has."""

    api: Api
    query: Query
    matchers: tuple[Matcher, ...]
    samples: float

    async def chunks(self, start: float, end: float) -> list[Series]:
        return await self.api.chunks(self.query.taking(self.matchers), start, end)

    async def raw(self, start: float, end: float) -> list[Series]:
        return await self.api.raw(self.query.samples(self.matchers, end - start), end)


async def _streamed(asked: _Asked, known: Known, start: float, end: float) -> Fetched:
    """A query by remote read; in JSON when that fails, whatever it says of the server, or tells nobody's series."""
    try:
        found = await _whole(asked, asked.chunks, STREAMED, start, end)
    except UnreachableError:
        return await _told(asked, start, end)
    series = None if found.failed else known.own(found.series)
    return await _told(asked, start, end) if series is None else Fetched(asked.query, tuple(series))


async def _told(asked: _Asked, start: float, end: float) -> Fetched:
    """A query in JSON."""
    return await _whole(asked, asked.raw, PORTION, start, end)


async def _whole(asked: _Asked, ask: _Ask, portion: int, start: float, end: float) -> Fetched:
    """All portions of a query, joined."""
    edges = np.linspace(start, end, max(ceil(asked.samples / portion), 1) + 1).tolist()
    parts = await asyncio.gather(*(_portion(ask, first, last) for first, last in pairwise(edges)))
    failed = [error for _, errors in parts for error in errors]
    series = parts[0][0] if len(parts) == 1 else join([series for found, _ in parts for series in found])
    return Fetched(asked.query, tuple(series), tuple(failed))


async def _portion(ask: _Ask, start: float, end: float) -> tuple[list[Series], list[PrometheusError]]:
    """One span, halved while it is too much; what failed for good is returned beside what came."""
    try:
        return await ask(start, end), []
    except UnreachableError:
        raise
    except TooMuchError as error:
        if end - start < 2 * SHORTEST_S:
            return [], [error]
    except PrometheusError as error:
        return [], [error]
    middle = (start + end) / 2
    early, refused = await _portion(ask, start, middle)
    late, also = await _portion(ask, middle, end)
    return join([*early, *late]), [*refused, *also]


def join(portions: Sequence[Series]) -> list[Series]:
    """Portions of series, in order of time, as whole series. A sample at the seam of two portions comes once: whether a range holds both
    its ends differs between servers and versions."""
    found: dict[frozenset[tuple[str, str]], list[Series]] = defaultdict(list)
    for series in portions:
        found[frozenset(series.labels.items())].append(series)
    return [parts[0] if len(parts) == 1 else _joined(parts) for parts in found.values()]


def _joined(parts: Sequence[Series]) -> Series:
    times, values = np.concatenate([part.times for part in parts]), np.concatenate([part.values for part in parts])
    fresh = np.concatenate([[True], times[1:] > np.maximum.accumulate(times)[:-1]])
    return Series(parts[0].labels, times[fresh], values[fresh])
