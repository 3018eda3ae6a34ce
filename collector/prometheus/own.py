"""The series of our own exporter back into readings: what a sidecar read of its engines, /v1/loads included. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import isnan

from collector.enabling import given
from collector.engines.limits import rank_of
from collector.errors import ConfigError
from collector.exported import of_signals
from collector.model import Reading, Source
from collector.prometheus.nodes import Node
from collector.targets import parse_target

_SIGNALS = {family.name: name for name, family in of_signals().items()}


def instances(engine: str) -> frozenset[str]:
    """host:port of an engine's nodes, as a scrape would name them; of an id that is no target, the id."""
    try:
        return frozenset(node.partition("://")[2] for node in parse_target(engine).nodes)
    except ConfigError:
        return frozenset({engine})


def readings(nodes: Sequence[Node]) -> dict[str, list[Reading]]:
    """Engine -> what its sidecar exported at each scrape of it, in order of time. Of two sidecars the one with most samples counts."""
    found: dict[str, list[Reading]] = {}
    weight: dict[str, int] = {}
    for node in nodes:
        for engine in sorted({series.labels["engine"] for series in node.series if series.labels.get("engine")}):
            size = sum(len(series.times) for series in node.series if series.labels.get("engine") == engine)
            if size > weight.get(engine, 0):
                found[engine], weight[engine] = list(_of(node, engine)), size
    return found


def _of(node: Node, engine: str) -> Iterator[Reading]:
    moments: dict[int, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    signals = set()
    for series in node.series:
        if series.labels.get("engine") != engine or series.name not in _SIGNALS:
            continue
        rank = rank_of(series.labels["rank"]) if series.labels.get("rank") else -1
        if rank is None:
            continue
        signal = _SIGNALS[series.name]
        signals.add(signal)
        for at, value in zip(series.times.tolist(), series.values.tolist(), strict=True):
            if not isnan(value):
                moments[at][signal][rank] = value
    # the exporter does not say of which kind an engine is; a signal that vLLM never gives does
    source = Source.VLLM_METRICS if all(given(signal, "vllm") for signal in signals) else Source.SGLANG_METRICS
    for at in sorted(moments):
        values = moments[at]
        times = dict.fromkeys((rank for ranks in values.values() for rank in ranks), at / 1000.0)
        yield Reading(engine, f"http://{node.instance}", source, at / 1000.0, times, values)
