"""Windows of every engine that a history server holds, over one stretch of time: the way from labels to series to store to window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from collector import signals
from collector.engines.kinds import ADJUST
from collector.engines.sglang_stored import ADD_LOADS
from collector.intake import MAX_PROBLEMS
from collector.model import Block, Clock, Facts, Problem, Window
from collector.prometheus import blocks
from collector.prometheus.api import Api
from collector.prometheus.errors import PrometheusError, TooMuchError
from collector.prometheus.fetch import Fetched, Known, fetch
from collector.prometheus.fleet import Engine, arrange, plain, target_names
from collector.prometheus.matchers import Matcher, selector
from collector.prometheus.matrix import Series
from collector.prometheus.owners import Owners, exported_engines
from collector.prometheus.queries import QUERIES, Kept, Query, query_of
from collector.store import Store
from collector.store import clock as moment

Kept_: TypeAlias = Mapping[object, Mapping[Kept, list[Series]]]
"""What was fetched, by server (its `id`) and, of slowrank's own page, by engine id."""

ADD_EXPORTER = "scrape slowrank's own /metrics as well, which has them (docs/prometheus.md)"

ONLY_SGLANG = {signals.SNAPSHOT_AGE, signals.RECV_WAIT, signals.SYNC_WAIT, signals.STEPS_IDLE}
"""Signals that vLLM has no series of: they tell whose engine it is where slowrank alone was scraped."""

CLOSE_S = 5.0
"""Scrape interval that is assumed where the server does not say how many samples there are: nothing scrapes engines faster for long."""


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """The windows, what kept other engines from having one, and why there is nothing at all where that is so.

    Not written out: asyncio.run of Python 3.11 makes the text of what its task returns, 1.1 s for the windows of 64 engines (measured).
    """

    windows: tuple[Window, ...]
    problems: tuple[Problem, ...] = ()
    nothing: str = ""


class NothingError(PrometheusError):
    """The server answered, and holds nothing that could be read."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is wanted: a stretch of time, and series that `matchers` take. `clock` as in `Intake`. `card`: what the engines run on, where a
    person says it; no series of an engine names it."""

    start: float  # unix seconds
    end: float
    matchers: tuple[Matcher, ...] = ()
    clock: Clock | None = None
    card: str | None = None


async def read(api: Api, scope: Scope) -> Answer:
    """Every engine that the server holds. Raises PrometheusError when the server cannot be asked, or holds nothing of an engine in that
    time: the message says which."""
    start, end = scope.start, scope.end
    labels = await api.labels([query.series(scope.matchers) for query in QUERIES], start, end)
    known = [(query, plain(found)) for found in labels if (query := query_of(found)) is not None]
    if not known:
        raise NothingError(await _why_nothing(api, scope))
    fleet = arrange([(query.kept, found) for query, found in known], api.url)
    owners = Owners(fleet.engines, target_names(found for _, found in known))
    by_name = exported_engines(fleet.engines, {found.get("engine", "") for query, found in known if query.kept is Kept.EXPORTED})
    wanted: dict[Query, int] = defaultdict(int)
    for query, found in known:
        if query.kept.ours or owners.of(query.kept, found) is not None:
            wanted[query] += 1
    if not wanted:
        if fleet.problems:
            return Answer((), fleet.problems)
        what = f"{len(known)} series of engines and none that names a rank (tp_rank on SGLang, engine on vLLM)"
        raise NothingError(f"{api.url}: {what}; scrape the engines' own ports, and keep these labels")
    points = await _points(api, next(found for query, found in known if query in wanted), start, end)
    fetched = await fetch(api, wanted, Known(labels), points, scope.matchers, start, end)
    kept: dict[object, dict[Kept, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for one in fetched:
        for series in one.series:
            own = plain(series.labels)
            if one.query.kept.ours:
                if (engine := by_name.get(own.get("engine", ""))) is not None:
                    kept[engine.id][one.query.kept].append(series)
            elif (owner := owners.of(one.query.kept, own)) is not None:
                kept[id(owner[1])][one.query.kept].append(series)
    failures = [_failure(one, error) for one in fetched for error in one.failed[:1]]
    warned = [Problem(api.url, text, "what it left out is unknown") for text in api.warnings]
    engines = {engine.id: engine for engine in (*fleet.engines, *by_name.values())}
    windows = [_window(engine, kept, scope, (*failures, *warned)) for engine in engines.values()]
    return Answer(tuple(windows), fleet.problems)


async def _points(api: Api, like: Mapping[str, str], start: float, end: float) -> float:
    """How many samples a series has between two unix times, by the metric of one that is known and its server."""
    names = [name for name in ("__name__", "instance", "pod") if name in like]
    chosen = selector([Matcher(name, "=", like[name]) for name in names])
    try:
        seen = await api.number(f"max(count_over_time({chosen}[{round((end - start) * 1000)}ms]))", end)
    except TooMuchError:
        seen = None
    return seen if seen is not None else (end - start) / CLOSE_S


def _window(engine: Engine, kept: Kept_, scope: Scope, problems: tuple[Problem, ...]) -> Window:
    """The window of one engine, as `Intake.window` makes it of live pages."""
    of_servers = [(server, kept.get(id(server), {})) for server in engine.servers]
    ours = kept.get(engine.id, {})
    exported = ours.get(Kept.EXPORTED, [])
    has_loads = any(found.get(Kept.SGLANG_LOADS) for _, found in of_servers)
    made: list[Block | None] = []
    for server, found in of_servers:
        made.append(blocks.loads(engine.id, server.name, found.get(Kept.SGLANG_LOADS, [])))
        own = Kept.VLLM_METRICS if engine.kind == "vllm" else Kept.SGLANG_METRICS
        gauges = [] if has_loads or exported else found.get(Kept.SGLANG_GAUGES, [])
        made.append(
            blocks.metrics(
                engine.id, server.name, engine.kind, [*found.get(own, []), *gauges], gauges=bool(gauges), alone=len(engine.servers) == 1
            )
        )
    given = {signal for block in made if block is not None for signal in (*block.values, *block.whole)}
    made.append(blocks.exported(engine.id, exported, given))
    pages = [block for block in made if block is not None]
    if engine.kind == "sglang" and not exported:
        problems = (*problems, _unkept(engine.id, has_loads))
    kind = engine.kind or ("sglang" if any(ONLY_SGLANG & set(block.values) for block in pages) else "vllm")
    known = blocks.facts(ours.get(Kept.FACTS, []))
    store = Store(engine.id, kind, depth_s=scope.end - scope.start, facts=known)
    for block in pages:
        store.feed_block(block)
    raw = store.window(scope.start, scope.end)
    told = Facts(accelerator=scope.card, clock=scope.clock)
    window = ADJUST[kind](replace(raw, engine=replace(raw.engine, facts=raw.engine.facts.merged(told))))
    return replace(window, problems=tuple(dict.fromkeys((*problems, *window.problems)))[:MAX_PROBLEMS])


def _unkept(engine: str, has_loads: bool) -> Problem:
    """What of /v1/loads no history of this engine holds."""
    if has_loads:
        what = "the decode moments of /v1/loads are not in its Prometheus text: which steps only decoded, and their time, is unknown"
        return Problem(engine, what, ADD_EXPORTER)
    what = "/v1/loads was not scraped: prefill times, decode times and the age of loads are unknown, and counts of requests and tokens"
    return Problem(engine, f"{what} are gauges of /metrics, which stand still on a rank that only steps for the others", ADD_LOADS)


def _failure(fetched: Fetched, error: PrometheusError) -> Problem:
    return Problem(fetched.query.name, f"not all of it could be read: {error}", "what it would say is unknown or from a part of the time")


async def _why_nothing(api: Api, scope: Scope) -> str:
    """What is in the way when no series of an engine lies in the scope."""
    start, end, matchers = scope.start, scope.end, scope.matchers
    narrowed = f" with {','.join(map(str, matchers))}" if matchers else ""
    what = f"{api.url}: no series of sglang or vllm{narrowed} between {moment(start)} and {moment(end)}"
    try:
        ever = await api.labels([query.series(matchers) for query in QUERIES])
        others = ever or not matchers or await api.labels([query.series(()) for query in QUERIES], start, end)
    except PrometheusError:
        return f"{what}; look whether it scrapes the engines' /metrics"
    if ever:
        return f"{what}, but {len(ever)} at other times; before its retention, or before it scraped them? Give another --at or --since"
    if matchers and others:
        return f"{what}, though without the matcher there are some; look at the labels of your targets"
    return f"{what}; does it scrape the engines' /metrics, and do they run with metrics on (SGLang: --enable-metrics)?"
