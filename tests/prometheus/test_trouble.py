"""What is in the way of single queries: each costs what it would have said, and the report says so (docs/prometheus.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from collector.model import Window
from collector.prometheus.api import Api, Server
from collector.prometheus.read import Answer, Scope, read

START, END, EVERY = 1000.0, 1600.0, 15.0
CPU, WAIT = "sglang:scheduler_process_cpu_seconds_total", "sglang:dp_attention_sync_wait_seconds_sum"
LABELS = {"model_name": "m", "engine_type": "unified", "instance": "n:1", "pp_rank": "0"}
SERIES = [{"__name__": name, **LABELS, "dp_rank": str(rank), "tp_rank": str(rank)} for name in (CPU, WAIT) for rank in (0, 1)]

Trouble = Callable[[str, float], httpx.Response | None]
"""Of a range query and its seconds; None: it is answered."""


def ask(trouble: Trouble, value: Callable[[float], float] = lambda at: at, timeout: float = 30.0) -> Answer:
    """Read counters of two ranks, sampled each 15 s, from a server that has no remote read."""

    async def answer(request: httpx.Request) -> httpx.Response:
        form = parse_qs(request.content.decode(errors="replace"))
        if request.url.path.endswith("/series"):
            return httpx.Response(200, json={"status": "success", "data": SERIES})
        if request.url.path.endswith("/read"):
            return httpx.Response(404)
        query, at = form["query"][0], float(form["time"][0])
        if query.startswith("max("):
            return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": []}})
        seconds = float(query.rpartition("[")[2].removesuffix("ms]")) / 1000
        if (refused := trouble(query, seconds)) is not None:
            if refused.status_code == 599:
                await asyncio.sleep(3600)
            return refused
        times = [t for t in np.arange(START, END + 1, EVERY).tolist() if at - seconds <= t <= at]
        rows = [{"metric": one, "values": [[t, str(value(t))] for t in times]} for one in SERIES if one["__name__"] in query]
        return httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": rows}})

    async def go() -> Answer:
        async with Api(Server("http://p:9090"), transport=httpx.MockTransport(answer), timeout=timeout) as api:
            return await read(api, Scope(START, END))

    return asyncio.run(go())


def told(window: Window) -> str:
    return "\n".join(map(str, window.problems))


NEVER = httpx.Response(599)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (httpx.Response(200, text='{"status":"success","data":{"resultType":"matrix","result":[{"metr'), "not the JSON that was expected"),
        (
            httpx.Response(200, text='{"status":"success","data":{"resultType":"vector","result":[]}}'),
            "'vector' where a matrix was expected",
        ),
        (httpx.Response(422, json={"status": "error", "error": "unknown function"}), "the server does not take the query"),
        (httpx.Response(422, json={"status": "error", "error": "query processing would load too many samples"}), "too much for the server"),
        (httpx.Response(503, json={"status": "error", "error": "query timed out in query execution"}), "too much for the server"),
        (httpx.Response(503, text="upstream connect error"), "the server is overloaded or starting"),
        (NEVER, "no complete answer within 0.05 s"),
    ],
    ids=["cut off", "another type", "refused", "too many samples", "timed out there", "overloaded", "timed out here"],
)
def test_a_query_that_fails_costs_what_it_would_have_said(reply: httpx.Response, said: str) -> None:
    """The other query's signal is there; the report names this one, what came back and what to do."""
    answer = ask(lambda query, _: httpx.Response(reply.status_code, content=reply.content) if "sync_wait" in query else None, timeout=0.05)
    (window,) = answer.windows
    assert window.get("scheduler_cpu") == pytest.approx(np.ones((2, 40)))
    assert not window.has("sync_wait")
    assert f"{WAIT}: not all of it could be read: http://p:9090/api/v1/query: " in told(window)
    assert said in told(window)


def test_a_query_that_is_too_slow_as_a_whole_is_asked_for_in_parts() -> None:
    """Half of it in time is all of it: nothing is missing, nothing is told."""
    asked: list[float] = []

    def slow(_: str, seconds: float) -> httpx.Response | None:
        asked.append(seconds)
        return NEVER if seconds > 400 else None

    (window,) = ask(slow, timeout=0.2).windows
    assert sorted(set(asked)) == [300.0, 600.0]
    assert window.get("sync_wait") == pytest.approx(np.ones((2, 40)))
    assert "could be read" not in told(window)


def test_series_of_two_clusters_that_collide_are_not_one_engine() -> None:
    """Two engines under the same labels, one scrape of the one and then of the other: counters that fall at each second sample are no
    restarts, and it is said what is likelier."""
    (window,) = ask(lambda *_: None, value=lambda at: at if (at // EVERY) % 2 else 1e6 + at).windows
    assert "the counters of rank 0 fell 20 times" in told(window)
    assert "if two engines answer at one URL, give each its own" in told(window)
