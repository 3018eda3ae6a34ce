"""Metric families of a table as real prometheus_client objects in multiprocess mode, with every label set looked up once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from workload.face.specs import PREFIX, Family

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram, Summary
    from prometheus_client.metrics import MetricWrapperBase

# SGLang's HELP texts are its authors' prose and carry nothing for a scraper: the captured pages have a dot there, and so do we.
HELP = "."


class Exposed:
    """The families that one process shows, with the labels it puts on all of them.

    At most one per process and family: two would keep two running totals of one series and overwrite each other.
    """

    def __init__(self, families: Iterable[Family], labels: Mapping[str, str]) -> None:
        # imported here, as SGLang does: the directory must be in the environment before the first import
        from prometheus_client import values

        if values.ValueClass is values.MutexValue:
            raise RuntimeError(
                "prometheus_client was imported without PROMETHEUS_MULTIPROC_DIR: set it before the process imports prometheus_client, "
                "or no scrape would see this process"
            )
        self._labels = tuple(labels.values())
        self._families = {family.name: (family, _build(family, tuple(labels))) for family in families}
        self._children: dict[tuple[str, ...], MetricWrapperBase] = {}

    def counter(self, name: str, *extra: str) -> Counter:
        """The family's child with these values of its own labels, in the table's order."""
        return cast("Counter", self._child(name, extra))

    def gauge(self, name: str, *extra: str) -> Gauge:
        return cast("Gauge", self._child(name, extra))

    def histogram(self, name: str, *extra: str) -> Histogram:
        return cast("Histogram", self._child(name, extra))

    def summary(self, name: str, *extra: str) -> Summary:
        return cast("Summary", self._child(name, extra))

    def observe_many(self, name: str, *extra: str, value: float, count: int) -> None:
        """`count` observations of `value` at once: what `observe` would do in a loop, at the price of one.

        SGLang 0.5.23 does the same for tokens that arrive together and for tokens sent to an expert's rank.
        """
        child = self.histogram(name, *extra)
        family, _ = self._families[name]
        child._sum.inc(value * count)  # noqa: SLF001 prometheus_client has no public way
        child._buckets[bisect_left(family.buckets, value)].inc(count)  # noqa: SLF001

    def _child(self, name: str, extra: tuple[str, ...]) -> MetricWrapperBase:
        child = self._children.get((name, *extra))
        if child is None:
            _, metric = self._families[name]
            values = self._labels + extra
            child = self._children[name, *extra] = metric.labels(*values) if values else metric
        return child


def _build(family: Family, labels: tuple[str, ...]) -> MetricWrapperBase:
    """The family's parent. In no registry: a scrape reads the files of all processes, never this object."""
    from prometheus_client import Counter, Gauge, Histogram, Summary

    name, names = PREFIX + family.name, labels + family.labels
    match family.kind:
        case "counter":
            return Counter(name, HELP, names, registry=None)
        case "gauge":
            return Gauge(name, HELP, names, registry=None, multiprocess_mode=family.mode)
        case "histogram":
            return Histogram(name, HELP, names, registry=None, buckets=family.buckets)
        case "summary":
            return Summary(name, HELP, names, registry=None)
