"""A span of the past of every engine that a server knows, as pages and readings. IO by its client alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from collector.intake import Intake
from collector.model import Clock, Page, Problem, Reading, Window
from collector.prometheus import own
from collector.prometheus.answer import PrometheusError, Series, joined
from collector.prometheus.client import Client
from collector.prometheus.engines import Found, engines
from collector.prometheus.nodes import nodes
from collector.prometheus.pages import pages
from collector.prometheus.queries import OWN, QUERIES, SGLANG, Query, density, named

CHUNK = 250_000
"""Samples that one query asks for: an answer of 8 MB, 45 MB while it is decoded. A server's own limit is 50 million."""

PROBE_MS = 300_000
"""How far a server looks back for a series that is not there at the very moment; the length over which scrapes are counted."""

LOADS = "SGLang's /v1/loads is not in Prometheus: what only it tells (requests, tokens, step times by decode_moments) is missing"
LOADS_THEN = "diagnose the live engine, give a capture, or let Prometheus scrape slowrank's own /metrics beside the engine"


@dataclass(frozen=True, slots=True, repr=False)  # asyncio.run of Python 3.11 writes out its task's result: ten times the reading itself
class Past:
    """What a server holds of a span: engines by their own pages, and by the series of a sidecar."""

    found: tuple[Found, ...]
    exported: dict[str, list[Reading]]
    problems: tuple[Problem, ...]
    queries: int
    samples: int

    @property
    def engines(self) -> tuple[str, ...]:
        """Ids of all engines."""
        return (*(found.id for found in self.found), *self.exported)


async def fetch(client: Client, start_ms: int, end_ms: int, match: str = "", progress: Callable[[float], None] = lambda _: None) -> Past:
    """Everything that a diagnosis reads between two moments, in unix milliseconds. `match`: matchers by `queries.matchers`.

    PrometheusError when the server cannot be asked or nothing of what was asked came; a metric that alone fails is a Problem.
    """
    problems: list[Problem] = []
    present = await _present(client, start_ms, end_ms, match)
    most = await _densities(client, [query for query, _ in present], start_ms, end_ms, match)
    jobs = [job for query, series in present for job in _jobs(query, series * most[query.kind], start_ms, end_ms)]
    done = 0
    failed: dict[Query, str] = {}

    async def one(query: Query, at: int, span: int) -> tuple[Series, ...]:
        nonlocal done
        try:
            answer = await client.query(query.samples(match, span), at)
        except PrometheusError as error:
            failed.setdefault(query, str(error))
            return ()
        finally:
            done += 1
            progress(done / len(jobs))
        problems.extend(
            Problem(client.url, f"the server warns: {warning}", "what it did not give is missing here") for warning in answer.warnings
        )
        return answer.series

    parts: dict[tuple[str, frozenset[tuple[str, str]]], list[Series]] = {}
    for answered in await asyncio.gather(*(one(*job) for job in jobs)):
        for series in answered:
            if len(series.times):
                parts.setdefault((series.name, frozenset(series.labels.items())), []).append(series)
    if failed and not parts:
        raise PrometheusError(next(iter(failed.values())))
    for query, why in failed.items():
        told = ", ".join(signal for signal in query.signals if not signal.startswith("_")) or query.metric
        problems.append(Problem(query.metric, f"not read whole, and {told} with it: {why}"))
    every = nodes((joined(those) for those in parts.values()), problems, client.url)
    sidecars = [node for node in every if node.kind == OWN]
    exported, told_of = own.readings(sidecars), own.instances(sidecars)
    found = engines([node for node in every if node.kind != OWN and node.instance not in told_of], problems)
    return Past(tuple(found), exported, tuple(dict.fromkeys(problems)), client.asked, client.samples)


def _moments(start_ms: int, end_ms: int) -> list[int]:
    """Where it is looked what there is: an engine may have come or gone within the span."""
    return sorted({end_ms, (start_ms + end_ms) // 2, min(start_ms + PROBE_MS, end_ms)})


async def _present(client: Client, start_ms: int, end_ms: int, match: str) -> list[tuple[Query, int]]:
    """The metrics that are there, and how many series of each."""
    most: dict[str, int] = {}
    for answer in await asyncio.gather(*(client.query(named(QUERIES, match), at) for at in _moments(start_ms, end_ms))):
        for series in answer.series:
            most[series.name] = max(most.get(series.name, 0), int(series.values[-1]))
    counts = [(query, sum(most.get(query.kind + mark + query.metric, 0) for mark in "_:")) for query in QUERIES]
    return [(query, count) for query, count in counts if count]


async def _densities(client: Client, present: Sequence[Query], start_ms: int, end_ms: int, match: str) -> dict[str, float]:
    """Samples of a series in the whole span, for each kind of page: at the highest rate seen, of its first metric."""
    probe = min(PROBE_MS, end_ms - start_ms)
    firsts = {query.kind: query for query in reversed(present)}
    asked = [(kind, at) for kind in firsts for at in _moments(start_ms, end_ms)]
    answers = await asyncio.gather(*(client.query(density(firsts[kind], match, probe), at) for kind, at in asked))
    found: dict[str, float] = dict.fromkeys(firsts, 1.0)
    for (kind, _), answer in zip(asked, answers, strict=True):
        for series in answer.series:
            found[kind] = max(found[kind], float(series.values[-1]) * (end_ms - start_ms) / probe)
    return found


def _jobs(query: Query, samples: float, start_ms: int, end_ms: int) -> list[tuple[Query, int, int]]:
    """(query, end, span) of each piece of the span, so that none asks for many more than CHUNK samples."""
    pieces = max(ceil(samples / CHUNK), 1)
    edges = [start_ms + (end_ms - start_ms) * k // pieces for k in range(pieces + 1)]
    return [(query, until, until - since) for since, until in pairwise(edges)]


def replay(past: Past, keep: Callable[[Page], None] = lambda _: None, clock: Clock | None = None) -> Iterator[tuple[str, Intake]]:
    """(engine, the intake that holds its past), engine by engine. `keep` gets every page too, as a recorder does."""
    for found in past.found:
        most = max(len({*series.times.tolist()}) for node in found.nodes for series in node.series)
        intake = Intake(depth_s=float(most), clock=clock)  # rows of its store, whatever the interval
        for page in pages(found):
            keep(page)
            intake.feed(page)
        if found.nodes[0].kind == SGLANG:
            intake.note(Problem(found.id, LOADS, LOADS_THEN))
        yield found.id, intake
    for engine, readings in past.exported.items():
        intake = Intake(depth_s=float(len(readings)), clock=clock)
        for reading in readings:
            intake.take(reading)
        yield engine, intake


def windows(
    past: Past, start_ms: int, end_ms: int, keep: Callable[[Page], None] = lambda _: None, clock: Clock | None = None
) -> list[Window]:
    """The window of each engine; what was wrong with the reading stands in each. `clock`: as a person says it, for vLLM."""
    found = []
    for engine, intake in replay(past, keep, clock):
        for problem in past.problems:
            intake.note(problem)
        found.append(intake.window(engine, (end_ms - start_ms) / 1000.0, end_ms / 1000.0))
    return found
