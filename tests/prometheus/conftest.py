"""A server in memory that answers the queries which are really sent, and a simulated engine's past."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs

import httpx
import pytest

from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.recording import START, Recording
from workload.virtual_time.simulate import simulate

SELECTOR = re.compile(r'\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}(?:\[(\d+)ms\])?')
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')
LOOKBACK_MS = 300_000


class Fake:
    """Prometheus as far as it is asked: selectors, their raw samples, counts. Ranges are closed on both sides, as Prometheus 2's."""

    def __init__(self, table) -> None:
        self.table = table
        self.queries: list[str] = []
        self.fails: dict[str, httpx.Response] = {}  # part of a query -> the answer instead

    def __call__(self, request: httpx.Request) -> httpx.Response:
        form = parse_qs(request.content.decode())
        query, at = form["query"][0], round(float(form["time"][0]) * 1000)
        self.queries.append(query)
        for part, reply in self.fails.items():
            if part in query:
                return httpx.Response(reply.status_code, content=reply.content)
        inside, span = SELECTOR.search(query).groups()
        found = list(self._select(MATCHER.findall(inside), at - int(span or LOOKBACK_MS), at))
        if query.startswith("count by (__name__)"):
            names = [name for name, _, _ in found]
            return vector([({"__name__": name}, names.count(name)) for name in sorted(set(names))], at)
        if query.startswith("max(count_over_time("):
            return vector([({}, max(len(samples) for _, _, samples in found))] if found else [], at)
        rows = [
            {"metric": {"__name__": name, **labels}, "values": [[t / 1000, repr(v)] for t, v in samples]} for name, labels, samples in found
        ]
        return answer("matrix", rows)

    def _select(self, matchers, since, until):
        for (name, labels), samples in self.table.items():
            have = {"__name__": name, **dict(labels)}
            tests = {
                "=": lambda a, b: a == b,
                "!=": lambda a, b: a != b,
                "=~": lambda a, b: re.fullmatch(b, a) is not None,
                "!~": lambda a, b: re.fullmatch(b, a) is None,
            }
            inside = [(round(at * 1000), value) for at, value in samples if since <= round(at * 1000) <= until]
            if inside and all(tests[op](have.get(label, ""), value) for label, op, value in matchers):
                yield name, dict(labels), inside


def vector(rows, at):
    return answer("vector", [{"metric": metric, "value": [at / 1000, str(value)]} for metric, value in rows])


def answer(kind, rows, **more):
    return httpx.Response(200, content=json.dumps({"status": "success", "data": {"resultType": kind, "result": rows}, **more}))


@pytest.fixture(scope="session")
def captured(tmp_path_factory):
    """`captured(fault)`: a capture of 120 s of eight simulated ranks, fault on rank 3 since the start; None: a healthy engine."""
    made = {}

    def make(fault):
        if fault not in made:
            path = tmp_path_factory.mktemp("captures") / f"{fault}.slowrank"
            with Recording(path) as recording:
                schedule = [] if fault is None else [Scheduled(fault, 3, 0.0, 1e9, 1.0)]
                simulate(ClusterConfig(seed=9), schedule, 120.0, recording, metrics_every=1.0)
            made[fault] = path
        return made[fault]

    return make


@pytest.fixture
def span():
    """(start, end) of the captures, unix milliseconds."""
    return round(START * 1000), round((START + 120) * 1000)


@pytest.fixture(scope="session")
def fake():
    """`fake(table)`: a transport's handler that answers as a server with these samples."""
    return Fake


@pytest.fixture(scope="session")
def matrix():
    """`matrix(rows, **more)`: an answer with these rows."""
    return lambda rows, **more: answer("matrix", rows, **more)
