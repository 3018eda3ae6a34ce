"""Every query that is put to a history server, by name: which series of which source, and which of their labels. Pure.

The series come from the tables of the engine files, so a metric that an engine renamed is followed there and nowhere else. Raw samples are
asked for (`selector[range]`), not rates: the store works out rates and resets from them exactly as from live pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from collector import exported
from collector.engines import sglang_experts, sglang_metrics, sglang_stored, vllm_metrics
from collector.prometheus.matchers import Matcher, none_of, one_of, selector


class Kept(Enum):
    """One kind of series that a history server keeps of an engine."""

    SGLANG_METRICS = "sglang's /metrics"
    SGLANG_GAUGES = "gauges of sglang's /metrics"
    SGLANG_LOADS = "sglang's /v1/loads as Prometheus text"
    VLLM_METRICS = "vllm's /metrics"
    EXPORTED = "slowrank's own /metrics"
    FACTS = "slowrank's own /metrics, of engines as a whole"

    @property
    def ours(self) -> bool:
        """Whether slowrank exported it: then a label names the engine as slowrank's configuration does."""
        return self is Kept.EXPORTED or self is Kept.FACTS


@dataclass(frozen=True, slots=True)
class Query:
    """The series that one query asks for; `name` is what reports and errors call it."""

    name: str
    kept: Kept
    names: tuple[str, ...]  # every spelling
    matchers: tuple[Matcher, ...] = ()

    def taking(self, more: Sequence[Matcher]) -> tuple[Matcher, ...]:
        """What these series match, narrowed by `more`."""
        return (one_of("__name__", self.names), *self.matchers, *more)

    def series(self, more: Sequence[Matcher]) -> str:
        """The selector of these series, narrowed by `more`."""
        return selector(self.taking(more))

    def samples(self, more: Sequence[Matcher], seconds: float) -> str:
        """Their raw samples of the last `seconds`."""
        return f"{self.series(more)}[{max(round(seconds * 1000), 1)}ms]"


def _sglang(name: str) -> Query:
    """One family of /metrics, less what no row of the reader's table takes."""
    rows = [row for row in (*sglang_metrics.ROWS, *sglang_metrics.ENGINE_ROWS) if name in row.names]
    label = rows[0].label
    only = {value for row in rows for value in row.only}
    unwanted = set.intersection(*(set(row.but) for row in rows if row.but)) - only if any(row.but for row in rows) else set()
    matchers: tuple[Matcher, ...] = ()
    if unwanted:
        matchers = (none_of(label, sorted(unwanted)),)
    elif label and not any(row.zero_beside == name for row in rows):  # there any series of the family proves that 0 is meant
        matchers = (one_of(label, sorted(only)),)
    spelt = tuple(prefix + name for prefix in sglang_metrics.PREFIXES)
    return Query(spelt[0], Kept.SGLANG_METRICS, spelt, matchers)


SIGNALS: Mapping[str, str] = {family.name: signal for signal, family in exported.of_signals().items()}
"""Series of our own page to the canonical signal."""

FACTS = (exported.ENGINE_INFO, *exported.FACT_NUMBERS.values())
"""Series of our own page that say what an engine is."""

_SCHEDULER = Matcher("tp_rank", "!=", "")  # a gauge of /metrics has it, the field of /v1/loads of the same name has not
_PAGE = Matcher("tp_rank", "=", "")


def _spelt(prefixes: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    return tuple(prefix + name for name in names for prefix in prefixes)


_BUCKETS = _spelt(sglang_metrics.PREFIXES, [sglang_experts.BUCKET])
_GAUGES = _spelt(sglang_metrics.PREFIXES, sglang_stored.GAUGES)

QUERIES: tuple[Query, ...] = (
    *(_sglang(name) for name in sorted(sglang_metrics.NAMES - {sglang_experts.BUCKET})),
    Query("expert load", Kept.SGLANG_METRICS, _BUCKETS, (Matcher("le", "!=", "+Inf"),)),
    Query("gauges", Kept.SGLANG_GAUGES, _GAUGES, (_SCHEDULER,)),
    Query("loads", Kept.SGLANG_LOADS, sglang_stored.PAGE_NAMES, (_PAGE,)),
    *(
        Query(vllm_metrics.PREFIXES[0] + name, Kept.VLLM_METRICS, _spelt(vllm_metrics.PREFIXES, [name]))
        for name in sorted(vllm_metrics.NAMES)
    ),
    Query("slowrank's signals", Kept.EXPORTED, tuple(SIGNALS)),
    Query("slowrank's facts", Kept.FACTS, FACTS),
)

_BY_NAME: dict[str, list[Query]] = {}
for _query in QUERIES:
    for _name in _query.names:
        _BY_NAME.setdefault(_name, []).append(_query)


def query_of(labels: Mapping[str, str]) -> Query | None:
    """The query that asks for a series with these labels. Of the names that /metrics and /v1/loads share, tp_rank tells which it is."""
    found = _BY_NAME.get(labels.get("__name__", ""), [])
    if len(found) > 1:
        found = [query for query in found if (query.kept is Kept.SGLANG_LOADS) == ("tp_rank" not in labels)]
    return found[0] if found else None
