"""The same incident read as live pages and out of real history servers: one verdict."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from collector.intake import Intake
from collector.prometheus.api import Api, Server
from collector.prometheus.fetch import Known
from collector.prometheus.matchers import parse as match
from collector.prometheus.queries import QUERIES
from collector.prometheus.read import Answer, Scope, read
from diagnose.engine import diagnose
from diagnose.model import Class, Verdict
from workload.config import ClusterConfig
from workload.schedule import parse
from workload.virtual_time.recording import START, Recording
from workload.virtual_time.simulate import simulate

SECONDS = 180.0
INTERVALS = (1.0, 5.0, 15.0, 30.0)
FAULTS = {
    "healthy": (),
    "host_cpu_starved": ("host_cpu_starved:rank=5,onset=0",),
    "context_length_skew": ("context_length_skew:rank=0,onset=0",),
    "expert_hotspot": ("expert_hotspot:rank=3,onset=0",),
}
EXACT = 0.001
"""Of a share: VictoriaMetrics keeps 12 digits, and a history's window may begin or end on another scrape."""

WITHOUT = 0.01
"""Of a share, without slowrank's own page: no other history holds the decode moments, so all steps are timed in place of decode steps."""


def ask(url: str, matchers: str = "", seconds: float = SECONDS) -> Answer:
    async def answer() -> Answer:
        async with Api(Server(url)) as api:
            return await read(api, Scope(START - 1, START + seconds, match(matchers) if matchers else (), card="H20-3e"))

    return asyncio.run(answer())


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("captures")
    for name, faults in FAULTS.items():
        with Recording(folder / name) as recording:
            simulate(ClusterConfig(seed=105), [parse(fault) for fault in faults], SECONDS, recording, metrics_every=1.0)
    return {name: folder / name for name in FAULTS}


def test_pages_prometheus_and_victoriametrics_agree(captures, helpers, stored) -> None:
    """Three faults and none, at four scrape intervals: same class, cause and ranks from pages and from both servers, and alike shares.

    Without slowrank's own page the faults are found all the same; health is not, and what is missing is named.
    """
    samples = []
    for name, path in captures.items():
        whole = list(helpers.read(path))
        for every in INTERVALS:
            cluster = f"{name}-{every:g}"
            samples += helpers.scraped(whole, every, f'instance="{cluster}:30000",job="sglang",cluster="{cluster}"')
            samples += helpers.exported(whole, every, cluster)
    servers = stored(samples)
    asyncio.run(both_ways(servers.prometheus))
    for name, path in captures.items():
        for every in INTERVALS:
            live, cluster = Intake(depth_s=SECONDS + 1), f"{name}-{every:g}"
            for page in helpers.sampled(helpers.read(path), every):
                live.feed(page)
            pages = diagnose(live.window(live.engines()[0])).verdict
            row = [share(pages, name)]
            for url in (servers.prometheus, servers.victoria):
                (window,) = ask(url, f'cluster="{cluster}"').windows
                assert window.engine.id == f"{cluster}:30000"
                found = diagnose(window).verdict
                assert (found.klass, found.cause, found.ranks) == (pages.klass, pages.cause, pages.ranks), (cluster, found.summary)
                assert share(found, name) == pytest.approx(share(pages, name), abs=EXACT), cluster
                row.append(share(found, name))
                (window,) = ask(url, f'cluster="{cluster}",job="sglang"').windows
                alone = diagnose(window).verdict
                row.append(share(alone, name))
                if name == "healthy":
                    assert alone.klass is Class.INSUFFICIENT
                    assert "which steps had a prefill" in alone.summary
                else:
                    assert (alone.klass, alone.cause, alone.ranks) == (pages.klass, pages.cause, pages.ranks), (cluster, alone.summary)
                    assert share(alone, name) == pytest.approx(share(pages, name), abs=WITHOUT), cluster
            print(f"| {name} | {every:g} s | " + " | ".join(f"{one:.1%}" for one in row) + " |")  # the table of docs/prometheus.md


async def both_ways(url: str) -> None:
    """A real Prometheus gives the same series as chunks and in JSON, sample by sample."""
    async with Api(Server(url)) as api:
        assert await api.streams()
        for query in QUERIES:
            start, end, matchers = START + 10, START + 100, match('cluster="host_cpu_starved-1"')
            known = Known(await api.labels([query.series(matchers)], start, end))
            chunks = known.own(await api.chunks(query.taking(matchers), start, end))
            assert chunks is not None
            plain = {frozenset(one.labels.items()): one for one in await api.raw(query.samples(matchers, end - start), end)}
            assert len(plain) == len(chunks)
            for one in chunks:
                other = plain[frozenset(one.labels.items())]
                assert np.array_equal(one.times, other.times)
                assert np.array_equal(one.values, other.values)


def share(verdict: Verdict, cause: str) -> float:
    return verdict.lost_time.by_cause.get(cause, 0.0)
