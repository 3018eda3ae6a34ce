"""The series of one server as readings: one page for each moment at which it was scraped. Pure.

All samples of one scrape have one time, so the moments are the pages. Each engine file says which series make up which signal, as it does
for a live page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import inf

import numpy as np

from collector import exported as names
from collector import signals
from collector.engines import sglang_metrics, sglang_stored, vllm_metrics
from collector.engines.limits import MAX_RANKS, few, rank_of
from collector.engines.sglang_loads import ROLES
from collector.engines.terms import Selection, Term, over_time
from collector.exposition import Sample
from collector.model import Block, Clock, Facts, FloatArray, Problem, Source
from collector.prometheus.fleet import plain
from collector.prometheus.matrix import Series
from collector.prometheus.queries import SIGNALS

AHEAD_S = 2.0
"""How far a rank's clock may be ahead of the history server's before the age of its load is unknown."""


def metrics(engine: str, node: str, kind: str, series: Sequence[Series], *, gauges: bool = False, alone: bool = True) -> Block | None:
    """What the stored /metrics of one server say; None when there is nothing. `gauges`: let them stand in for /v1/loads. `alone`: it is the
    engine's only server, so that its sums are the engine's."""
    if not series:
        return None
    moments, values, samples = _aligned(series)
    if kind == "vllm":
        found = vllm_metrics.select(samples, node)
        if alone:
            found = replace(found, terms=(*found.terms, *vllm_metrics.first_tokens(found.terms)))
        return _block(engine, node, Source.VLLM_METRICS, moments, values, found, None)
    chosen = sglang_metrics.select(samples, node)
    if gauges:
        plainly = [name_of(sample.name) for sample in samples]
        chosen = replace(chosen, terms=(*chosen.terms, *sglang_stored.select_gauges(samples, chosen.speakers, plainly)))
    return _block(engine, node, Source.SGLANG_METRICS, moments, values, chosen, None)


def loads(engine: str, node: str, series: Sequence[Series]) -> Block | None:
    """What the stored /v1/loads page says."""
    if not series:
        return None
    moments, values, samples = _aligned(series)
    chosen, clocks = sglang_stored.select_page(samples, node)
    return _block(engine, node, Source.SGLANG_LOADS, moments, values, chosen, clocks)


def exported(engine: str, series: Sequence[Series], but: AbstractSet[str]) -> Block | None:
    """What slowrank itself exported of an engine, less the signals `but`, which its own series give."""
    wanted = [one for one in series if SIGNALS[one.labels["__name__"]] not in but]
    if not wanted:
        return None
    moments, values, samples = _aligned(wanted)
    terms = []
    for place, sample in enumerate(samples):
        signal = SIGNALS[sample.name]
        rank = rank_of(sample.labels.get("rank", "")) if signals.CATALOGUE[signal].scope is signals.Scope.RANK else -1
        if rank is not None:
            terms.append(Term(signal, rank, (place,)))
    return _block(engine, "slowrank", Source.SLOWRANK_METRICS, moments, values, Selection(tuple(terms)), None)


def facts(series: Sequence[Series]) -> Facts:
    """What slowrank's own page said last of an engine; what no engine can be is not said."""
    newest = {one.labels["__name__"]: one for one in sorted(series, key=lambda one: one.times[-1] if len(one.times) else -np.inf)}
    labels = newest[names.ENGINE_INFO].labels if names.ENGINE_INFO in newest else {}
    texts = {field: labels.get(label) or None for field, label in names.FACT_LABELS.items()}
    numbers = {field: float(newest[name].values[-1]) for field, name in names.FACT_NUMBERS.items() if name in newest}
    ranks, cards = (int(n) if 1 <= (n := numbers.get(field, 0)) <= MAX_RANKS else None for field in ("expected_ranks", "cards"))
    token_bytes = numbers.get("kv_bytes_per_token", 0.0)
    return Facts(
        version=texts["version"],
        model=texts["model"],
        role=texts["role"] if texts["role"] in ROLES.values() else None,
        accelerator=texts["accelerator"],
        expected_ranks=ranks,
        kv_bytes_per_token=token_bytes if 0 < token_bytes < inf else None,
        clock=next((clock for clock in Clock if clock == texts["clock"]), None),
        cards=cards,
    )


def name_of(spelt: str) -> str:
    """A series' name without its prefix."""
    return next((spelt.removeprefix(prefix) for prefix in sglang_metrics.PREFIXES if spelt.startswith(prefix)), spelt)


def _aligned(series: Sequence[Series]) -> tuple[FloatArray, FloatArray, list[Sample]]:
    """(n,) moments, (S, n) values with NaN where a series has no sample at that moment, and the last value of each series as a sample."""
    moments = series[0].times
    alike = all(len(one.times) == len(moments) and np.array_equal(one.times, moments) for one in series)
    if not alike:
        moments = np.unique(np.concatenate([one.times for one in series]))
    values = np.full((len(series), len(moments)), np.nan)
    for row, one in zip(values, series, strict=True):
        row[slice(None) if alike else np.searchsorted(moments, one.times)] = one.values
    last = [float(one.values[-1]) if len(one.values) else np.nan for one in series]
    samples = [Sample(one.labels["__name__"], plain(one.labels), value) for one, value in zip(series, last, strict=True)]
    return moments, values, samples


def _block(
    engine: str, node: str, source: Source, moments: FloatArray, values: FloatArray, chosen: Selection, clocks: Mapping[int, int] | None
) -> Block | None:
    found = over_time(chosen.terms, values)
    ranks = tuple(sorted({rank for by_rank in found.values() for rank in by_rank if rank >= 0}))
    blank = np.full(len(moments), np.nan)
    per_rank = {
        signal: np.column_stack([by_rank.get(rank, blank) for rank in ranks]) for signal, by_rank in found.items() if set(by_rank) - {-1}
    }
    if not per_rank:
        return None
    there = np.zeros((len(moments), len(ranks)), dtype=bool)
    for table in per_rank.values():
        there |= np.isfinite(table)
    times = np.where(there, moments[:, None], np.nan)
    problems = list(chosen.problems)
    if clocks is not None:
        times, per_rank = _published(node, moments, times, per_rank, values, ranks, clocks, problems)
    whole = {signal: by_rank[-1] for signal, by_rank in found.items() if -1 in by_rank}
    return Block(engine, node, source, moments, ranks, times, per_rank, whole, chosen.facts, few(problems), chosen.speakers)


def _published(
    node: str,
    moments: FloatArray,
    times: FloatArray,
    per_rank: dict[str, FloatArray],
    values: FloatArray,
    ranks: Sequence[int],
    clocks: Mapping[int, int],
    problems: list[Problem],
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Load snapshots at the time of their own, with their age; a rank that never published is not there."""
    blank = np.full(len(moments), np.nan)
    stamps = np.column_stack([values[clocks[rank]] if rank in clocks else blank for rank in ranks])
    never = stamps == 0.0
    age = np.where(np.isfinite(stamps) & ~never, moments[:, None] - stamps, np.nan)
    ahead = age < -AHEAD_S
    if ahead.any():
        what = f"clocks of ranks are up to {-np.nanmin(age):.0f} s ahead of the history server's; the age of their loads is unknown"
        problems.append(Problem(node, what, "set the clocks of all nodes by NTP"))
    age = np.where(ahead, np.nan, np.maximum(age, 0.0))
    out = {signal: np.where(never, np.nan, table) for signal, table in per_rank.items()}
    out[signals.SNAPSHOT_AGE] = age
    return np.where(never, np.nan, times - np.nan_to_num(age)), out
