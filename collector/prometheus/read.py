"""Windows of every engine that a history server holds, over one stretch of time: the way from labels to series to store to window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from collector.engines.kinds import ADJUST
from collector.engines.sglang_stored import ADD_LOADS
from collector.intake import MAX_PROBLEMS
from collector.model import Block, Clock, Problem, Window
from collector.prometheus import blocks
from collector.prometheus.api import Api
from collector.prometheus.errors import PrometheusError, TooMuchError
from collector.prometheus.fetch import Fetched, fetch
from collector.prometheus.fleet import Engine, arrange, plain
from collector.prometheus.matchers import Matcher, selector
from collector.prometheus.matrix import Series
from collector.prometheus.owners import Owners
from collector.prometheus.queries import QUERIES, Kept, Query, query_of
from collector.store import Store
from collector.store import clock as moment

CLOSE_S = 5.0
"""Scrape interval that is assumed where the server does not say how many samples there are: nothing scrapes engines faster for long."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The windows, what kept other engines from having one, and why there is nothing at all where that is so."""

    windows: tuple[Window, ...]
    problems: tuple[Problem, ...] = ()
    nothing: str = ""


class NothingError(PrometheusError):
    """The server answered, and holds nothing that could be read."""


async def read(api: Api, start: float, end: float, matchers: Sequence[Matcher] = (), clock: Clock | None = None) -> Answer:
    """Every engine between two unix times. `matchers` narrow all queries; `clock` as in `Intake`.

    Raises PrometheusError when the server cannot be asked, or holds nothing of an engine in that time: the message says which.
    """
    labels = await api.labels([query.series(matchers) for query in QUERIES], start, end)
    known = [(query, plain(found)) for found in labels if (query := query_of(found)) is not None]
    if not known:
        raise NothingError(await _why_nothing(api, start, end, matchers))
    fleet = arrange(((query.kept, found) for query, found in known), api.url)
    owners = Owners(fleet.engines)
    wanted: dict[Query, int] = defaultdict(int)
    for query, found in known:
        if owners.of(query.kept, found) is not None:
            wanted[query] += 1
    if not wanted:
        if fleet.problems:
            return Answer((), fleet.problems)
        what = f"{len(known)} series of engines and none that names a rank (tp_rank on SGLang, engine on vLLM)"
        raise NothingError(f"{api.url}: {what}; scrape the engines' own ports, and keep these labels")
    points = await _points(api, next(found for query, found in known if query in wanted), start, end)
    fetched = await fetch(api, wanted, points, matchers, start, end)
    failures = tuple(_failure(one, error) for one in fetched for error in one.failed[:1])
    warned = tuple(Problem(api.url, text, "what it left out is unknown") for text in api.warnings)
    by_server: dict[int, dict[Kept, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for one in fetched:
        for series in one.series:
            owner = owners.of(one.query.kept, plain(series.labels))
            if owner is not None:
                by_server[id(owner[1])][one.query.kept].append(series)
    windows = [_window(engine, by_server, start, end, clock, (*failures, *warned)) for engine in fleet.engines]
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


def _window(
    engine: Engine,
    series: Mapping[int, Mapping[Kept, list[Series]]],
    start: float,
    end: float,
    clock: Clock | None,
    problems: tuple[Problem, ...],
) -> Window:
    """The window of one engine, as `Intake.window` makes it of live pages."""
    where = f"{engine.id} in the history"
    of_servers = [(server, series.get(id(server), {})) for server in engine.servers]
    has_loads = any(found.get(Kept.SGLANG_LOADS) for _, found in of_servers)
    made: list[Block | None] = []
    for server, found in of_servers:
        made.append(blocks.loads(engine.id, server.name, found.get(Kept.SGLANG_LOADS, [])))
        own = Kept.VLLM_METRICS if engine.kind == "vllm" else Kept.SGLANG_METRICS
        gauges = [] if has_loads else found.get(Kept.SGLANG_GAUGES, [])
        made.append(blocks.metrics(engine.id, server.name, engine.kind, [*found.get(own, []), *gauges], gauges=bool(gauges)))
    pages = [block for block in made if block is not None]
    if engine.kind == "sglang" and not has_loads:
        what = "/v1/loads is not there: prefill times, decode times and the age of loads are missing, and"
        what += " counts of requests and tokens are /metrics' gauges, which stand still on a rank that steps for the others only"
        problems = (*problems, Problem(where, what, ADD_LOADS))
    store = Store(engine.id, engine.kind, depth_s=max([len(block.arrived) for block in pages], default=1))
    for block in pages:
        store.feed_block(block)
    raw = store.window(start, end)
    if clock is not None:
        raw = replace(raw, engine=replace(raw.engine, facts=replace(raw.engine.facts, clock=clock)))
    window = ADJUST[engine.kind](raw)
    return replace(window, problems=tuple(dict.fromkeys((*problems, *window.problems)))[:MAX_PROBLEMS])


def _failure(fetched: Fetched, error: PrometheusError) -> Problem:
    return Problem(fetched.query.name, f"not all of it could be read: {error}", "what it would say is unknown or from a part of the time")


async def _why_nothing(api: Api, start: float, end: float, matchers: Sequence[Matcher]) -> str:
    """What is in the way when no series of an engine lies between two unix times."""
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
