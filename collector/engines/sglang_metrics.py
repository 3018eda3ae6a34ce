"""SGLang's GET /metrics into a Reading: which series of a page speaks for a DP rank, and which signal it carries. Pure.

Facts from SGLang's own code, 0.5.9 to 0.5.23 (docs/signals.md). What a page forces on its reader:
- every TP rank shows the per-process counters, but only the stats ranks (attention TP rank 0) fill the per-DP-rank ones: the others show
  created zeros. So one TP rank speaks for each DP rank: the lowest whose step or token counters are not zero, else the lowest;
- each pipeline stage shows its own copy: the lowest stage speaks;
- dp_rank is left out when there is one DP rank, and only then; beside series that have it, a series without it belongs to no rank;
- with priority scheduling priority="" is the total and the others are parts of it;
- NaN is no reading, and a sum with a NaN in it is none either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector import signals
from collector.engines import sglang_experts
from collector.engines.limits import MAX_RANKS, few, name_ranks, rank_of
from collector.engines.terms import Selection, Term, at_once
from collector.exposition import Parser, Sample
from collector.model import Facts, Page, Problem, Reading

STAGES = "_stages"
"""Helper counter, s: all stages in which the scheduler works, still with the sync wait inside; `sglang.adjust` takes that out."""

TOKENS = "_tokens"
"""Helper counter, tokens: computed tokens by the log path. Shows that a rank makes progress when the DP-attention counters do not move."""


@dataclass(frozen=True, slots=True)
class Row:
    """One signal and the series it is read from: sums of the samples `names` (the first on the page; older spellings follow) whose
    `label` is one of `only` or none of `but`, over the labels `over`. Where a rank lacks the sample but has one of `zero_beside`, it is 0:
    SGLang creates such a counter at its first increment, and the other series proves a version that has it.
    """

    signal: str
    names: tuple[str, ...]
    label: str = ""
    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    zero_beside: str = ""

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is part of the signal."""
        if not self.label:
            return True
        value = labels.get(self.label, "")
        return value in self.only if self.only else value not in self.but


_STAGE = "scheduler_stage_seconds_total"
_GRAPHS = "cuda_graph_passes_total"

ROWS: tuple[Row, ...] = (
    Row(signals.ATTENTION_TOKENS, ("dp_attention_tokens_total",), "kind", ("scheduled",)),
    Row(signals.ATTENTION_PAIRS, ("dp_attention_pairs_total",), "kind", ("scheduled",)),
    Row(signals.IMBALANCE_PAIRS, ("dp_attention_pairs_total",), "kind", ("imbalance",)),
    Row(signals.STEPS_ACTIVE, ("dp_attention_steps_total",), "rank_state", ("active",)),
    Row(signals.STEPS_IDLE, ("dp_attention_steps_total",), "rank_state", ("idle",)),
    Row(signals.SYNC_WAIT, ("dp_attention_sync_wait_seconds_sum",)),
    Row(signals.RECV_WAIT, (_STAGE,), "category", ("recv_requests",), over=("forward_overlap",)),
    # process_batch_result waits for the device, recv_requests for the peers' broadcast
    Row(STAGES, (_STAGE,), "category", but=("recv_requests", "idle", "process_batch_result"), over=("forward_overlap", "category")),
    Row(signals.SCHEDULER_CPU, ("scheduler_process_cpu_seconds_total",)),
    Row(signals.FORWARD_TIME, ("forward_execution_seconds_total", "gpu_execution_seconds_total"), over=("category",)),
    Row(signals.RETRACTED, ("num_retracted_requests_total",), zero_beside=_STAGE),
    Row(signals.GRAPH_STEPS, (_GRAPHS,), "mode", ("decode_cuda_graph",), zero_beside=_GRAPHS),
    Row(signals.EAGER_STEPS, (_GRAPHS,), "mode", ("decode_none",), zero_beside=_GRAPHS),
    Row(signals.CACHED_TOKENS, ("realtime_tokens_total",), "mode", ("prefill_cache",), zero_beside="realtime_tokens_total"),
    Row(TOKENS, ("realtime_tokens_total",), "mode", ("prefill_compute", "decode"), over=("mode",)),
)
ENGINE_ROWS: tuple[Row, ...] = (
    Row(signals.BALANCEDNESS_SUM, ("eplb_balancedness_sum",), over=("forward_mode",)),
    Row(signals.BALANCEDNESS_COUNT, ("eplb_balancedness_count",), over=("forward_mode",)),
    # without streaming the first token a client gets is the last one
    Row(signals.FIRST_TOKEN_TIME, ("time_to_first_token_seconds_sum",), "is_streaming", but=("false",), over=("is_streaming",)),
    Row(signals.FIRST_TOKENS, ("time_to_first_token_seconds_count",), "is_streaming", but=("false",), over=("is_streaming",)),
)
SPEAKS = ("dp_attention_steps_total", "realtime_tokens_total")
"""The counters only a stats rank fills, the better first."""

PREFIXES = ("sglang:", "sglang_")
"""How a page spells the same metric; an OpenMetrics reply of newer Prometheus clients, gateways and Ray write the second."""

NAMES = frozenset(name for row in (*ROWS, *ENGINE_ROWS) for name in row.names) | {sglang_experts.BUCKET}
"""Every sample that is read, without its prefix."""

_ENGINE_NAMES = frozenset(name for row in ENGINE_ROWS for name in row.names)


def parser() -> Parser:
    """A parser of the families that are read here. One per node: it is fast on pages that resemble the last one it saw."""
    return Parser(PREFIXES[0] + name for name in sorted(NAMES))


@dataclass(frozen=True, slots=True)
class _Series:
    name: str
    dp: int | None  # None: no dp_rank on it
    process: tuple[int, int]  # pipeline stage, TP rank
    labels: Mapping[str, str]
    value: float
    place: int  # among the samples of the page


def read(page: Page, url: str, parsing: Parser) -> Reading:
    """One /metrics page in canonical signals (cumulative), per DP rank; engine-wide ones under rank -1; helpers beside them.

    All values are of the page's arrival. Raises SourceError for a body that is not a metrics page.
    """
    exposition = parsing.parse(page.body)
    chosen = select(exposition.samples, url)
    values = at_once(chosen.terms, [sample.value for sample in exposition.samples])
    times = dict.fromkeys((rank for found in values.values() for rank in found), page.arrived)
    problems = few([*(Problem(url, what) for what in exposition.problems), *chosen.problems])
    return Reading(page.engine, page.node, page.source, page.arrived, times, values, chosen.facts, problems, chosen.speakers)


def select(samples: Sequence[Sample], url: str) -> Selection:
    """Which of the samples of one node make up which signal on which rank. Their values tell who speaks for a rank and whether series
    that are there twice agree."""
    problems: list[Problem] = []
    series, buckets = _series(samples, url, problems)
    if not buckets and all(one.name in _ENGINE_NAMES for one in series):
        then = "scrape the engine's own port, not a router's, with SGLang >= 0.5.9 started with --enable-metrics"
        problems.append(Problem(url, "none of SGLang's per-rank counters is on this page", then))
    ranks = _ranks(series, url, problems)
    experts = sglang_experts.Layout()
    terms: list[Term] = []
    speakers: dict[int, int] = {}
    for rank, all_of_rank in ranks.items():
        for one in all_of_rank:
            experts.note(rank, one.process[1], one.labels.get("moe_ep_rank", ""))
        process = _speaker(all_of_rank)
        speakers[rank] = process[0] * MAX_RANKS + process[1]
        terms += _terms(rank, ROWS, [one for one in all_of_rank if one.process == process], url, problems)
    if engine_wide := [one for one in series if one.name in _ENGINE_NAMES]:
        first = min(one.process for one in engine_wide)
        terms += _terms(-1, ENGINE_ROWS, [one for one in engine_wide if one.process == first], url, problems)
    for rank, (plus, minus) in sglang_experts.load(buckets, experts, url, problems).items():
        terms.append(Term(signals.EXPERT_LOAD, rank, plus, minus))
    facts = _facts([one for all_of_rank in ranks.values() for one in all_of_rank], url, problems)
    return Selection(tuple(terms), facts, tuple(problems), speakers)


def _series(samples: Sequence[Sample], url: str, problems: list[Problem]) -> tuple[list[_Series], list[sglang_experts.Bucket]]:
    """The wanted samples with their place among the processes; those whose labels cannot be meant are named in a Problem."""
    series: list[_Series] = []
    buckets: list[sglang_experts.Bucket] = []
    parts: set[str] = set()
    totals: set[str] = set()
    for place, sample in enumerate(samples):
        name, labels = _plain(sample.name), sample.labels
        if name not in NAMES:
            continue
        if name == sglang_experts.BUCKET:
            buckets.append(sglang_experts.Bucket(labels.get("layer", ""), labels.get("le", ""), sample.value, place))
            continue
        if labels.get("priority"):
            parts.add(name)
            continue
        totals.add(name)
        spelt = [labels.get(label, "") for label in ("dp_rank", "pp_rank", "tp_rank")]
        numbers = [rank_of(label) for label in spelt]
        wrong = [f"{label!r:.40}" for label, number in zip(spelt, numbers, strict=True) if label and number is None]
        if wrong:
            problems.append(Problem(url, f"{name} has {', '.join(wrong)} for a rank; the series was skipped"))
            continue
        series.append(_Series(name, numbers[0], (numbers[1] or 0, numbers[2] or 0), labels, sample.value, place))
    problems += [
        Problem(url, f'{name} is there per priority only, without the total (priority=""); it was not read')
        for name in sorted(parts - totals)
    ]
    return series, buckets


def _plain(name: str) -> str:
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def _ranks(series: list[_Series], url: str, problems: list[Problem]) -> dict[int, list[_Series]]:
    """Per-rank series by DP rank. Without any dp_rank on the page there is one DP rank, 0."""
    per_rank = [one for one in series if one.name not in _ENGINE_NAMES]
    labelled = [one for one in per_rank if one.dp is not None]
    if labelled and len(labelled) < len(per_rank):
        what = f"{len(per_rank) - len(labelled)} series without dp_rank beside others that have one; they belong to no rank"
        problems.append(Problem(url, what, "give each engine's own URL: pages of several engines seem to be joined here"))
    ranks: dict[int, list[_Series]] = defaultdict(list)
    for one in labelled or per_rank:
        ranks[one.dp if one.dp is not None else 0].append(one)
    return dict(ranks)


def _speaker(series: list[_Series]) -> tuple[int, int]:
    """The process (pipeline stage, TP rank) that speaks for a DP rank."""
    stage = min(one.process[0] for one in series)
    here = [one for one in series if one.process[0] == stage]
    for name in SPEAKS:
        moved = [one.process for one in here if one.name == name and one.value > 0]
        if moved:
            return min(moved)
    return min(one.process for one in here)


def _terms(rank: int, rows: tuple[Row, ...], series: list[_Series], url: str, problems: list[Problem]) -> list[Term]:
    """What `series`, all of one process, say of `rank`."""
    by_name: dict[str, list[_Series]] = defaultdict(list)
    for one in series:
        by_name[one.name].append(one)
    mixed = False
    terms: list[Term] = []
    for row in rows:
        name = next((name for name in row.names if name in by_name), "")
        parts: dict[tuple[str, ...], _Series] = {}
        agreed = True
        for one in by_name.get(name, ()):
            if row.takes(one.labels):
                # the pid label of a process is not an identity: after a restart the dead process' part stays and the two add up
                part = tuple(one.labels.get(label, "") for label in (*row.over, "pid"))
                agreed = agreed and parts.setdefault(part, one).value == one.value
        zero = row.zero_beside in by_name
        if not agreed:
            mixed = True
        elif parts or zero:
            terms.append(Term(row.signal, rank, tuple(one.place for one in parts.values()), zero=zero))
    if mixed:
        whose = name_ranks([rank]) if rank >= 0 else "the engine"
        what = f"{whose} is there more than once with different values; what differs was not read"
        problems.append(Problem(url, what, "give each engine's own URL: pages of several engines seem to be joined here"))
    return terms


def _facts(series: list[_Series], url: str, problems: list[Problem]) -> Facts:
    models = {model for one in series if (model := one.labels.get("model_name"))}
    roles = {role for one in series if (role := one.labels.get("engine_type"))}
    if len(models) > 1:
        problems.append(Problem(url, f"{len(models)} model names on one page", "give each engine's own URL"))
    role = roles.pop() if len(roles) == 1 else None
    return Facts(model=models.pop() if len(models) == 1 else None, role=role if role in {"unified", "prefill", "decode"} else None)
