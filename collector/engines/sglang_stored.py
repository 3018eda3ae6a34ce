"""What a history server may hold of SGLang's /v1/loads: the page itself, scraped with `format=prometheus`, or /metrics' gauges. Pure.

Facts from SGLang 0.5.23's own code (docs/signals.md): the page has every core field as a gauge `sglang_<field>` with `dp_rank` alone, of
sections `sglang_<section>_<field>`; decode_moments are not on it; `speculative` is there only once speculation counted something,
`disaggregation` always. /metrics has gauges of almost the same names, told apart by their tp_rank; they stand still on a rank that only
steps for the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf

from collector import signals
from collector.engines.limits import MAX_RANKS, rank_of
from collector.engines.sglang_loads import FIELDS, SECTION_FIELDS
from collector.engines.terms import Selection, Term
from collector.exposition import Sample
from collector.model import Facts, Problem

_SECTIONS = {"disaggregation": "disagg", "speculative": "spec"}

PAGE: Mapping[str, tuple[str, float]] = {f"sglang_{field}": (signal, factor) for signal, field, factor in FIELDS} | {
    f"sglang_{_SECTIONS[section]}_{field}": (signal, factor) for signal, section, field, factor in SECTION_FIELDS
}
"""Name of a series of the page to its signal and the factor into the signal's unit."""

TIMESTAMP = "sglang_timestamp"
"""When a rank's snapshot was made; 0 on one that never published."""

_CACHE, _CAPACITY = "sglang_memory_kv_cache_gb", "sglang_memory_token_capacity"
PAGE_NAMES = (*PAGE, TIMESTAMP, _CACHE, _CAPACITY)

GAUGES: Mapping[str, str] = {
    "num_running_reqs": signals.RUNNING,
    "num_queue_reqs": signals.WAITING,
    "num_used_tokens": signals.RESIDENT_TOKENS,
    "token_usage": signals.KV_USAGE,
    "num_prefill_bootstrap_queue_reqs": signals.BOOTSTRAP_QUEUE,
    "num_prefill_inflight_queue_reqs": signals.INFLIGHT_QUEUE,
    "num_decode_prealloc_queue_reqs": signals.PREALLOC_QUEUE,
    "num_decode_transfer_queue_reqs": signals.TRANSFER_QUEUE,
}
"""Gauge of /metrics, without its prefix, to the signal that it stands in for."""

_COMPUTED = "realtime_tokens_total"

ADD_LOADS = "scrape /v1/loads of node 0 as well: a job with metrics_path: /v1/loads and params: {format: [prometheus]} (docs/prometheus.md)"


def select_page(samples: Sequence[Sample], url: str) -> tuple[Selection, dict[int, int]]:
    """Terms of the stored /v1/loads page, and the place of each rank's snapshot time."""
    terms: list[Term] = []
    clocks: dict[int, int] = {}
    pools: dict[str, float] = {}
    ranks: set[int] = set()
    sections = speculates = False
    problems: list[Problem] = []
    for place, sample in enumerate(samples):
        rank = rank_of(sample.labels.get("dp_rank", "0"))
        if rank is None:
            shown = sample.labels.get("dp_rank", "")
            problems.append(Problem(url, f"{sample.name} has {shown!r:.40} for a rank; the series was skipped"))
            continue
        ranks.add(rank)
        sections = sections or sample.name.startswith("sglang_disagg_")
        if sample.name == TIMESTAMP:
            clocks[rank] = place
        elif sample.name in {_CACHE, _CAPACITY}:
            pools.setdefault(sample.name, sample.value)
        elif sample.name in PAGE:
            signal, factor = PAGE[sample.name]
            speculates = speculates or signal == signals.ACCEPT_LENGTH
            terms.append(Term(signal, rank, (place,), factor=factor))
    cache, capacity = pools.get(_CACHE, 0.0), pools.get(_CAPACITY, 0.0)
    facts = Facts(kv_bytes_per_token=cache * 1e9 / capacity if 0 < cache < inf and 0 < capacity < inf else None)
    if sections and not speculates:  # every section was asked for, and nothing was ever speculated: one token a request and step
        terms += [Term(signals.ACCEPT_LENGTH, rank, (), zero=True, offset=1.0) for rank in sorted(ranks)]
    return Selection(tuple(terms), facts, tuple(problems)), clocks


def select_gauges(samples: Sequence[Sample], speakers: Mapping[int, int], plain: Sequence[str]) -> list[Term]:
    """Stand-ins out of /metrics, of the process that speaks for each rank. `plain`: the samples' names without their prefix."""
    parts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, (sample, name) in enumerate(zip(samples, plain, strict=True)):
        signal = GAUGES.get(name)
        if name == _COMPUTED and sample.labels.get("mode") == "prefill_compute":
            signal = signals.PREFILL_TOKENS
        rank, stage, process = (rank_of(sample.labels.get(label, "") or "0") for label in ("dp_rank", "pp_rank", "tp_rank"))
        if signal is None or rank is None or stage is None or process is None or sample.labels.get("priority"):
            continue
        if speakers.get(rank) == stage * MAX_RANKS + process:
            parts[signal, rank].append(place)
    return [Term(signal, rank, tuple(places)) for (signal, rank), places in parts.items() if len(places) == 1]
