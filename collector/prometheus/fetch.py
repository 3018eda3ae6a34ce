"""Which queries bring how much, in which portions, and what comes back joined to whole series. IO only through `Api`.

A portion is as many samples as a reply of some 20 MB holds. A portion that the server refuses as too large, or does not manage in time, is
halved and asked for again, so that no limit of any server has to be known.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np

from collector.prometheus.api import Api
from collector.prometheus.errors import PrometheusError, TooMuchError, UnreachableError
from collector.prometheus.matchers import Matcher
from collector.prometheus.matrix import Series
from collector.prometheus.queries import Query

PORTION = 500_000
"""Samples of one reply: 37 bytes each, 18 MB. A hundredth of Prometheus' limit of 50 million a query."""

SHORTEST_S = 30.0
"""Span of a portion that is not halved again: two scrapes at 15 s. A server that cannot give that much is told of as it is."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of one query: whole series, or those of the parts that came, with what is missing."""

    query: Query
    series: tuple[Series, ...]
    failed: tuple[PrometheusError, ...] = ()


async def fetch(
    api: Api, wanted: Mapping[Query, int], points: float, matchers: Sequence[Matcher], start: float, end: float
) -> list[Fetched]:
    """Every wanted query between two unix times. `wanted`: query to how many series it has; `points`: samples of one series in that time.

    A query that fails is told in its Fetched. Raises UnreachableError when the server is no longer there.
    """
    tasks: list[asyncio.Task[Fetched]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for query, count in wanted.items():
                parts = max(ceil(count * points / PORTION), 1)
                tasks.append(group.create_task(_whole(api, query, matchers, np.linspace(start, end, parts + 1).tolist())))
    except* UnreachableError as gone:
        raise gone.exceptions[0] from None
    return [task.result() for task in tasks]


async def _whole(api: Api, query: Query, matchers: Sequence[Matcher], edges: list[float]) -> Fetched:
    """All portions of a query, joined."""
    spans = pairwise(edges)
    parts = await asyncio.gather(*(_portion(api, query, matchers, start, end) for start, end in spans))
    failed = [error for _, errors in parts for error in errors]
    return Fetched(query, tuple(join([series for found, _ in parts for series in found])), tuple(failed))


async def _portion(
    api: Api, query: Query, matchers: Sequence[Matcher], start: float, end: float
) -> tuple[list[Series], list[PrometheusError]]:
    """One span, halved while it is too much; what failed for good is returned beside what came."""
    try:
        return await api.raw(query.samples(matchers, end - start), end), []
    except UnreachableError:
        raise
    except TooMuchError as error:
        if end - start < 2 * SHORTEST_S:
            return [], [error]
    except PrometheusError as error:
        return [], [error]
    middle = (start + end) / 2
    early, refused = await _portion(api, query, matchers, start, middle)
    late, also = await _portion(api, query, matchers, middle, end)
    return [*early, *late], [*refused, *also]


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
