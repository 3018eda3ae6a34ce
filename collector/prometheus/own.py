"""The series of our own exporter back into readings: what a sidecar read of its engines, /v1/loads included. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isnan, nan

from collector.enabling import given
from collector.engines.limits import MAX_RANKS, rank_of
from collector.errors import ConfigError
from collector.exported import ENGINE, EXPECTED_RANKS, KV_BYTES, of_signals
from collector.model import Clock, Facts, Reading, Source
from collector.prometheus.answer import Series
from collector.prometheus.nodes import Node
from collector.targets import parse_target

_SIGNALS = {family.name: name for name, family in of_signals().items()}


def instances(nodes: Sequence[Node]) -> frozenset[str]:
    """host:port of the nodes of all engines that sidecars read, as a scrape would name them: what the engines' own pages need not tell."""
    labels = [series.labels for node in nodes for series in node.series]
    found: set[str] = set()
    for target in {text for of in labels for text in (of.get("target"), of.get("engine")) if text}:
        with suppress(ConfigError):  # an engine may have a name that is no target
            found.update(node.partition("://")[2] for node in parse_target(target).nodes)
    return frozenset(found)


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
    told: dict[str, Series] = {}
    for series in node.series:
        if series.labels.get("engine") != engine:
            continue
        if series.name not in _SIGNALS:
            told[series.name] = max(series, told.get(series.name, series), key=lambda one: int(one.times[-1]))
            continue
        rank = rank_of(series.labels["rank"]) if series.labels.get("rank") else -1
        if rank is None:
            continue
        signal = _SIGNALS[series.name]
        for at, value in zip(series.times.tolist(), series.values.tolist(), strict=True):
            if not isnan(value):
                moments[at][signal][rank] = value
    facts, source = _facts(told), _source(told, moments)
    for at in sorted(moments):
        values = moments[at]
        times = dict.fromkeys((rank for ranks in values.values() for rank in ranks), at / 1000.0)
        yield Reading(engine, f"http://{node.instance}", source, at / 1000.0, times, values, facts)


def _facts(told: Mapping[str, Series]) -> Facts:
    """What the exporter says of the engine as a whole, by its newest word."""
    info = told[ENGINE].labels if ENGINE in told else {}
    ranks, size = (float(told[name].values[-1]) if name in told else nan for name in (EXPECTED_RANKS, KV_BYTES))
    return Facts(
        version=info.get("version") or None,
        model=info.get("model") or None,
        role=info.get("role") or None,
        accelerator=info.get("accelerator") or None,
        expected_ranks=int(ranks) if 1 <= ranks <= MAX_RANKS else None,
        kv_bytes_per_token=size if size > 0 else None,
        clock=next((clock for clock in Clock if clock == info.get("clock")), None),
    )


def _source(told: Mapping[str, Series], moments: Mapping[int, Mapping[str, object]]) -> Source:
    """The page that tells most of the engine's kind; where no series says the kind, a signal that vLLM never gives does."""
    kind = told[ENGINE].labels.get("kind") if ENGINE in told else None
    if kind is None:
        seen = {signal for values in moments.values() for signal in values}
        kind = "vllm" if all(given(signal, "vllm") for signal in seen) else "sglang"
    return Source.VLLM_METRICS if kind == "vllm" else Source.SGLANG_METRICS
