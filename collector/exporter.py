"""Samples in, Prometheus families out: our own /metrics. The one place that knows prometheus_client's classes.

Each part of the page is asked on its own: one that raises is counted and logged, and the others are shown all the same.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from collector import exported

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

log = logging.getLogger(__name__)


class Distribution:
    """How often values fell between the bounds of a histogram's family: it grows with what it sees."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: rising, as in `collector.exported`."""
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # up to and including each bound, and above the last
        self.total = 0.0

    def see(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def copy(self) -> Distribution:
        """As it is now."""
        other = Distribution(self._bounds)
        other.counts, other.total = self.counts.copy(), self.total
        return other

    def cumulated(self) -> Iterator[tuple[str, float]]:
        """Prometheus' buckets: bound, and how many are not above it."""
        yield from zip((*map(repr, map(float, self._bounds)), "+Inf"), map(float, accumulate(self.counts)), strict=True)


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a family of `collector.exported`, or a distribution of a histogram's. `labels`: values in the order of the family's
    label names. `more`: label names and values beyond those, for the one family whose labels people choose."""

    name: str
    value: float | Distribution
    labels: tuple[str, ...] = ()
    more: tuple[tuple[str, str], ...] = ()


Part = Callable[[], Iterable[Sample]]


class Exporter:
    """Our page, made of parts by name. Those of one name are one to whoever reads of failures."""

    def __init__(self, parts: Mapping[str, Part] | Callable[[], Iterable[tuple[str, Part]]]) -> None:
        """`parts`, or what gives them anew for each page."""
        self._parts = parts if callable(parts) else parts.items
        self._known = {family.name: family for family in exported.of_signals().values()} | exported.FAMILIES
        self._failures: dict[str, int] = {}

    def collect(self) -> list[Metric]:
        """All families that have samples, by name. Nothing is written as text yet."""
        taken: dict[str, list[Sample]] = {}
        for name, part in self._parts():
            self._take(taken, name, part)
        return self._families(taken)

    async def page(self) -> bytes:
        """The page. Parts are taken one by one on the loop, which owns what they read, with room for others between them; families and
        text, which take longer, are made in a thread."""
        taken: dict[str, list[Sample]] = {}
        for name, part in self._parts():
            self._take(taken, name, part)
            await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: written(self._families(taken)))

    def _take(self, taken: dict[str, list[Sample]], name: str, part: Part) -> None:
        try:
            for sample in part():
                taken.setdefault(sample.name, []).append(sample)
        except Exception:
            self._failures[name] = self._failures.get(name, 0) + 1
            log.exception("the part %s of /metrics could not be made, which is a defect of slowrank", name)

    def _families(self, taken: dict[str, list[Sample]]) -> list[Metric]:
        failed = [Sample(exported.EXPORT_FAILURES, count, (part,)) for part, count in self._failures.copy().items()]
        if failed:
            taken[exported.EXPORT_FAILURES] = failed
        return [_family(self._known[name], samples) for name, samples in sorted(taken.items())]


def written(metrics: Iterable[Metric]) -> bytes:
    """The families in Prometheus' text format."""
    return generate_latest(_Taken(list(metrics)))


class _Taken(Collector):
    """Families that were collected already, so that they can be written elsewhere than where they were made."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _family(family: exported.Exported, samples: Iterable[Sample]) -> Metric:
    samples = list(samples)
    extra = tuple(sorted({name for sample in samples for name, _ in sample.more}))  # on each series, as Prometheus asks
    metric: Any = _MADE[family.kind](family.name, family.help, labels=(*family.labels, *extra))
    for sample in samples:
        if len(sample.labels) != len(family.labels):
            raise ValueError(f"{family.name} has the labels {family.labels}, and {len(sample.labels)} values were given")
        more = dict(sample.more)
        labels = [_text(value) for value in (*sample.labels, *(more.get(name, "") for name in extra))]
        if isinstance(sample.value, Distribution):
            metric.add_metric(labels, list(sample.value.cumulated()), sample.value.total)
        else:
            metric.add_metric(labels, float(sample.value))  # numpy's own print as np.float64(...)
    return cast(Metric, metric)


_MADE: Mapping[exported.Kind, Callable[..., Any]] = {
    exported.Kind.COUNTER: CounterMetricFamily,
    exported.Kind.GAUGE: GaugeMetricFamily,
    exported.Kind.HISTOGRAM: HistogramMetricFamily,
}


def _text(value: str) -> str:
    """A label value that UTF-8 can hold: lone surrogates come out of JSON escapes."""
    return value.encode("utf-8", "replace").decode()
