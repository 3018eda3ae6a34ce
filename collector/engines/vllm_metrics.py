"""vLLM's GET /metrics into a Reading: which series is which signal of which engine core. Pure.

Facts from vLLM 0.32 and 0.33's own code and from running 0.32 (docs/signals.md). What a page forces on its reader:
- `engine` is the DP rank; a page holds all ranks, one node's, or one, as requests are balanced. Without any `engine` there is one rank, 0;
- series of the front end (rejections, LoRA) have no engine and belong to no rank;
- ':' is '_' after a trip through Ray or a gateway, and the Rust front end answers in OpenMetrics, in another order of labels;
- `cache_config_info` carries numbers in its labels, "None" where there is none, and is missing from the Rust front end's page;
- the inter-token latency is observed once per request and step: its sum over its count is the step time, its sum per second how many
  requests decode;
- families of speculative decoding and of a KV transfer are there only when the engine does it: their absence is an answer;
- `iteration_tokens_total` is observed by each API server that had a part in a step: as a count of steps it is too high with several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from collector import signals
from collector.engines.limits import MAX_RANKS, few, rank_of
from collector.engines.terms import Selection, Term, at_once
from collector.exposition import Parser, Sample
from collector.model import Facts, Page, Problem, Reading

GAP_TIME = "_gap_time"
"""Helper counter, s: time between consecutive outputs of a request, summed over requests."""

GAPS = "_gaps"
"""Helper counter: how many such times there were."""

GENERATED = "_generated"
"""Helper counter, tokens: output tokens. Counted as they come, where prompts are counted when their first output comes."""

ITERATIONS = "_iterations"
"""Helper counter: steps with output, each counted by every API server that had a part in it."""

DRAFTS, ACCEPTED = "_drafts", "_accepted"
"""Helper counters: drafts verified, one per request and step, and the tokens of them that were accepted."""

FIRST_TIME, FIRSTS = "_first_token_time", "_first_tokens"
"""Helper counters of one engine: seconds from arrivals at the front end to first tokens, and how many; `Reader` adds the engines up."""


@dataclass(frozen=True, slots=True)
class Row:
    """One signal: the sum of the samples of the first of `names` that the rank has, whose `label`, if one is stated, is one of `only`."""

    signal: str
    names: tuple[tuple[str, str], ...]  # name, and the label that it is told by ("": none)
    only: tuple[str, ...] = ()


_DRAFTS = "spec_decode_num_drafts_total"

ROWS: tuple[Row, ...] = (
    Row(signals.RUNNING, (("num_requests_running", ""),)),
    # deferred ones wait for something else than a place: a LoRA slot, a KV transfer
    Row(signals.WAITING, (("num_requests_waiting_by_reason", "reason"), ("num_requests_waiting", "")), ("capacity",)),
    Row(signals.KV_USAGE, (("kv_cache_usage_perc", ""),)),
    Row(signals.PREFILL_TOKENS, (("prompt_tokens_by_source_total", "source"),), ("local_compute",)),
    Row(signals.CACHED_TOKENS, (("prompt_tokens_by_source_total", "source"),), ("local_cache_hit",)),
    Row(GENERATED, (("generation_tokens_total", ""),)),
    Row(signals.RETRACTED, (("num_preemptions_total", ""),)),
    Row(GAP_TIME, (("inter_token_latency_seconds_sum", ""),)),
    Row(GAPS, (("inter_token_latency_seconds_count", ""),)),
    Row(ITERATIONS, (("iteration_tokens_total_count", ""),)),
    Row(DRAFTS, ((_DRAFTS, ""),)),
    Row(ACCEPTED, (("spec_decode_num_accepted_tokens_total", ""),)),
    # both are observed when a request ends, by the engine core's clock
    Row(signals.REQUEST_QUEUE_TIME, (("request_queue_time_seconds_sum", ""),)),
    Row(signals.FINISHED_REQUESTS, (("request_queue_time_seconds_count", ""),)),
    Row(signals.REQUEST_PREFILL_TIME, (("request_prefill_time_seconds_sum", ""),)),
    Row(FIRST_TIME, (("time_to_first_token_seconds_sum", ""),)),
    Row(FIRSTS, (("time_to_first_token_seconds_count", ""),)),
)
PREFIXES = ("vllm:", "vllm_")
"""How a page spells the same metric; Ray and some gateways write the second."""

_CONFIG = "cache_config_info"
_TRANSFERS = frozenset(
    {
        "nixl_xfer_time_seconds_count",
        "nixl_num_failed_transfers_total",
        "num_requests_kv_fetch_by_stage",
        "mooncake_xfer_time_seconds_count",
    }
)
"""Families of an engine that hands KV over: NIXL and Mooncake on both halves, the fetch by stage on the half that decodes."""

NAMES = frozenset(name for row in ROWS for name, _ in row.names) | {_CONFIG} | _TRANSFERS
"""Every sample that is read, without its prefix."""


def parser() -> Parser:
    """A parser of the families that are read here. One per node: it is fast on pages that resemble the last one it saw."""
    return Parser(PREFIXES[0] + name for name in sorted(NAMES))


@dataclass(frozen=True, slots=True)
class _Series:
    name: str
    labels: Mapping[str, str]
    value: float
    place: int  # among the samples of the page


def read(page: Page, url: str, parsing: Parser) -> Reading:
    """One /metrics page in canonical signals (cumulative), by the page's own engine numbers; helpers beside them.

    All values are of the page's arrival. Raises SourceError for a body that is not a metrics page.
    """
    exposition = parsing.parse(page.body)
    chosen = select(exposition.samples, url)
    values = at_once(chosen.terms, [sample.value for sample in exposition.samples])
    times = dict.fromkeys((rank for found in values.values() for rank in found), page.arrived)
    problems = few([*(Problem(url, what) for what in exposition.problems), *chosen.problems])
    return Reading(page.engine, page.node, page.source, page.arrived, times, values, chosen.facts, problems)


def select(samples: Sequence[Sample], url: str) -> Selection:
    """Which of the samples of one node make up which signal of which engine number. Their values tell whether series that are there twice
    agree."""
    problems: list[Problem] = []
    ranks = _ranks(samples, url, problems)
    if not ranks:
        then = "do not pass --disable-log-stats; scrape the API server's own port, not a supervisor's or a router's"
        problems.append(Problem(url, "none of vLLM's per-engine series is on this page", then))
    terms: list[Term] = []
    for rank, series in ranks.items():
        found = _terms(rank, series, url, problems)
        terms += found
        usage = next((term for term in found if term.signal == signals.KV_USAGE), None)
        capacity = _capacity(series)
        if usage is not None and capacity is not None:
            terms.append(replace(usage, signal=signals.RESIDENT_TOKENS, factor=capacity))
        generated = next((term for term in found if term.signal == GENERATED), None)
        if generated is not None and all(one.name != _DRAFTS for one in series):
            # a request gets one token a step without drafts
            terms.append(replace(generated, signal=signals.ACCEPT_LENGTH, factor=0.0, offset=1.0))
    models = {model for series in ranks.values() for one in series if (model := one.labels.get("model_name"))}
    split = any(one.name in _TRANSFERS for series in ranks.values() for one in series)
    unified = _whole(terms, samples) and not split
    facts = Facts(model=models.pop() if len(models) == 1 else None, role="unified" if unified else None)
    return Selection(tuple(terms), facts, tuple(problems))


def _whole(terms: Sequence[Term], samples: Sequence[Sample]) -> bool:
    """Whether the page is a whole one, so that what is not on it is not there: tokens are counted wherever statistics are."""
    return bool(at_once([term for term in terms if term.signal == GENERATED], [sample.value for sample in samples]))


def first_tokens(terms: Sequence[Term]) -> list[Term]:
    """FIRST_TOKEN_TIME and FIRST_TOKENS of an engine whose ranks are all among these terms."""
    found = []
    for helper, signal in ((FIRST_TIME, signals.FIRST_TOKEN_TIME), (FIRSTS, signals.FIRST_TOKENS)):
        if parts := [place for term in terms if term.signal == helper for place in term.plus]:
            found.append(Term(signal, -1, tuple(parts)))
    return found


def _ranks(samples: Sequence[Sample], url: str, problems: list[Problem]) -> dict[int, list[_Series]]:
    """The wanted samples by engine number; a label that is none is named in a Problem."""
    labelled: dict[int, list[_Series]] = defaultdict(list)
    bare: list[_Series] = []
    for place, sample in enumerate(samples):
        name = next((sample.name[len(p) :] for p in PREFIXES if sample.name.startswith(p)), "")
        if name not in NAMES:
            continue
        one = _Series(name, sample.labels, sample.value, place)
        label = sample.labels.get("engine", "")
        rank = rank_of(label)
        if not label:
            bare.append(one)
        elif rank is None:
            problems.append(Problem(url, f"{name} has {label!r:.40} for an engine, which is no number below {MAX_RANKS}; it was skipped"))
        else:
            labelled[rank].append(one)
    if labelled and bare:
        what = f"{len(bare)} series without an engine beside others that have one; they belong to no rank"
        problems.append(Problem(url, what, "give each server's own URL: pages of several seem to be joined here"))
    return dict(labelled) if labelled else {0: bare} if bare else {}


def _terms(rank: int, series: list[_Series], url: str, problems: list[Problem]) -> list[Term]:
    """What `series` say of `rank`: nothing when some of them contradict each other."""
    by_name: dict[str, list[_Series]] = defaultdict(list)
    for one in series:
        by_name[one.name].append(one)
    terms: list[Term] = []
    for row in ROWS:
        found = next(((name, label) for name, label in row.names if name in by_name), None)
        if found is None:
            continue
        name, label = found
        parts: dict[str, _Series] = {}
        for one in by_name[name]:
            part = one.labels.get(label, "") if label else ""
            if label and part not in row.only:
                continue
            first = parts.setdefault(part, one)
            if first is not one and first.value != one.value:
                what = f"engine {rank} is there more than once with different values; it was not read"
                problems.append(Problem(url, what, "give each server's own URL: pages of several seem to be joined here"))
                return []
        if parts:
            terms.append(Term(row.signal, rank, tuple(one.place for one in parts.values())))
    return terms


def _capacity(series: list[_Series]) -> float | None:
    """Tokens that a rank's KV cache holds, from a label of cache_config_info; None when it does not say.

    num_gpu_blocks times block_size is no stand-in: on a page of vLLM 0.32 it is twice kv_cache_size_tokens.
    """
    return next((_number(one.labels.get("kv_cache_size_tokens", "")) for one in series if one.name == _CONFIG), None)


def _number(label: str) -> float | None:
    """A positive whole number, as a label spells it; "None" and anything else is none."""
    return float(label) if label.isascii() and label.isdigit() and 0 < len(label) <= 15 and int(label) > 0 else None
