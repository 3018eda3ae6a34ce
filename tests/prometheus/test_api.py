"""What goes wrong between us and a history server: each message names the server, what was seen and the next step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.errors import ConfigError
from collector.model import Engine as Model
from collector.model import Window
from collector.prometheus import errors, matchers, matrix
from collector.prometheus.api import Api, Server, parse_url
from collector.prometheus.read import Answer, NothingError, Scope, read

URL = "http://prometheus:9090"
START, END = 1000.0, 1600.0
Handler = Callable[[httpx.Request], httpx.Response]


def ask(handler: Handler, *, timeout: float = 30.0, server: Server | None = None, scope: Scope | None = None) -> Answer:
    async def answer() -> Answer:
        async with Api(server or Server(URL), transport=httpx.MockTransport(handler), timeout=timeout) as api:
            return await read(api, scope or Scope(START, END))

    return asyncio.run(answer())


def label_sets(nodes: int = 1, **more: str) -> list[dict[str, str]]:
    """CPU counters of nodes of two ranks."""
    common = {"__name__": "sglang:scheduler_process_cpu_seconds_total", "model_name": "m", "engine_type": "unified", "pp_rank": "0", **more}
    return [
        {**common, "instance": f"n{node}:30000", "dp_rank": str(2 * node + k), "tp_rank": str(2 * node + k)}
        for node in range(nodes)
        for k in (0, 1)
    ]


def form_of(request: httpx.Request) -> dict[str, list[str]]:
    return parse_qs(request.content.decode()) or parse_qs(request.url.query.decode())


def server(series: list[dict[str, str]], refuse: Handler | None = None) -> Handler:
    """Holds counters that grow by 1 a second, sampled every 15 s. `refuse` answers range queries first; None from it: go on."""

    def answer(request: httpx.Request) -> httpx.Response:
        form = form_of(request)
        if request.url.path.endswith("/series"):
            return httpx.Response(200, json={"status": "success", "data": series})
        query, at = form["query"][0], float(form["time"][0])
        if query.startswith("max("):
            return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": []}})
        if refuse is not None and (refusal := refuse(request)) is not None:
            return refusal
        seconds = float(query.rpartition("[")[2].removesuffix("ms]")) / 1000
        times = [t for t in np.arange(START, END + 1, 15.0).tolist() if at - seconds <= t <= at]
        rows = [{"metric": labels, "values": [[t, str(t)] for t in times]} for labels in series if labels["__name__"] in query]
        return httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": rows}})

    return answer


def test_a_window_out_of_a_server() -> None:
    """Two nodes of two ranks are one engine of four; a counter that grows by 1 a second has that rate."""
    (window,) = ask(server(label_sets(2))).windows
    assert window.engine.id == "n0:30000,n1:30000"
    assert window.ranks == (0, 1, 2, 3)
    assert window.get("scheduler_cpu") == pytest.approx(np.ones((4, 40)))


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (
            httpx.Response(401, text="nope"),
            errors.UnreachableError,
            "HTTP 401, the server asks who we are; give its token",
        ),
        (httpx.Response(404, text="404 page not found"), errors.UnreachableError, "no query API there; give the URL above /api/v1"),
        (httpx.Response(302, headers={"location": "/login"}), errors.UnreachableError, "HTTP 302"),
        (httpx.Response(200, text="<!DOCTYPE html><title>Login"), errors.UnreachableError, "HTML where JSON was expected"),
        (httpx.Response(200, text=""), errors.PrometheusError, "the reply is empty"),
        (httpx.Response(200, text='{"status":"success","da'), errors.PrometheusError, "not the JSON that was expected"),
        (httpx.Response(200, text="[1]"), errors.PrometheusError, "not the JSON that was expected"),
        (httpx.Response(503, text="Service Unavailable"), errors.TooMuchError, "the server is overloaded or starting"),
        (httpx.Response(422, json={"status": "error", "error": "invalid thing"}), errors.PrometheusError, "('invalid thing')"),
    ],
)
def test_replies_that_are_none(reply: httpx.Response, kind: type[Exception], said: str) -> None:
    """Each names the URL that was asked."""
    with pytest.raises(kind) as failed:
        ask(lambda _: reply)
    assert str(failed.value).startswith(f"{URL}/api/v1/series: ")
    assert said in str(failed.value)


def test_a_wrong_token_is_not_a_missing_one() -> None:
    """The message names the options, never the token; the token and the tenant are in the headers."""
    seen: list[httpx.Headers] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(403)

    with pytest.raises(errors.UnreachableError, match="the token is not the server's") as failed:
        ask(refuse, server=Server(URL, "s3cret", tenant="team-a"))
    assert "s3cret" not in str(failed.value)
    assert (seen[0]["authorization"], seen[0]["x-scope-orgid"]) == ("Bearer s3cret", "team-a")
    assert "s3cret" not in repr(Server(URL, "s3cret"))


def test_nobody_listens() -> None:
    """The port is named, and what to look at."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("x") from ConnectionRefusedError()

    with pytest.raises(errors.UnreachableError, match="nothing listens there; is the server up"):
        ask(refuse)


def test_a_server_that_does_not_answer() -> None:
    """A query has a time limit of its own."""

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(3600)
        raise AssertionError

    with pytest.raises(errors.TooMuchError, match=r"no complete answer within 0.01 s"):
        ask(never, timeout=0.01)  # type: ignore[arg-type]


def test_a_server_that_takes_only_get() -> None:
    """A proxy for readers refuses POST once; everything else is asked by GET."""
    methods = []

    def answer(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        return httpx.Response(405) if request.method == "POST" else server(label_sets())(request)

    assert ask(answer).windows[0].ranks == (0, 1)
    assert methods.count("POST") == 1


def test_too_many_samples_are_asked_for_in_halves() -> None:
    """What a server refuses as too large is split until it passes, and the seams leave no gap and no sample twice."""
    asked = []

    def refuse(request: httpx.Request) -> httpx.Response | None:
        query = form_of(request)["query"][0]
        span = float(query.rpartition("[")[2].removesuffix("ms]"))
        asked.append(span)
        error = "query processing would load too many samples into memory in query execution"
        return httpx.Response(422, json={"status": "error", "errorType": "execution", "error": error}) if span > 200_000 else None

    (window,) = ask(server(label_sets(), refuse)).windows  # type: ignore[arg-type]
    assert sorted(set(asked), reverse=True) == [600_000, 300_000, 150_000]
    assert window.get("scheduler_cpu") == pytest.approx(np.ones((2, 40)))


def test_what_fails_for_one_query_leaves_the_others() -> None:
    """The window holds the rest, and a problem says which query, why and what that means."""
    wait = [{**labels, "__name__": "sglang:dp_attention_sync_wait_seconds_sum"} for labels in label_sets()]

    def refuse(request: httpx.Request) -> httpx.Response | None:
        return httpx.Response(503, text="upstream") if "sync_wait" in form_of(request)["query"][0] else None

    (window,) = ask(server([*label_sets(), *wait], refuse)).windows  # type: ignore[arg-type]
    assert window.get("scheduler_cpu") == pytest.approx(np.ones((2, 40)))
    said = "\n".join(map(str, window.problems))
    assert "dp_attention_sync_wait_seconds_sum: not all of it could be read: http://prometheus:9090/api/v1/query: HTTP 503" in said


def test_a_partial_answer_says_so() -> None:
    """Warnings of Thanos and the flag of VictoriaMetrics reach the report."""
    said = "1 store is unavailable"

    def answer(request: httpx.Request) -> httpx.Response:
        reply = json.loads(server(label_sets())(request).content)
        return httpx.Response(200, json={**reply, "warnings": [said]})

    assert any(said in str(problem) for problem in ask(answer).windows[0].problems)
    assert matrix.labels(b'{"status":"success","isPartial":true,"data":[]}') == ([], [matrix.PARTIAL])


def test_a_time_before_the_retention() -> None:
    """Nothing in the span but something at other times is another answer than nothing at all, or nothing with the matcher."""

    def outside(request: httpx.Request) -> httpx.Response:
        there = [] if "start" in form_of(request) else label_sets()
        return httpx.Response(200, json={"status": "success", "data": there})

    with pytest.raises(NothingError, match="but 2 at other times; before its retention"):
        ask(outside)
    with pytest.raises(NothingError, match="does it scrape the engines' /metrics"):
        ask(server([]))

    def unmatched(request: httpx.Request) -> httpx.Response:
        there = [] if 'job="x"' in form_of(request)["match[]"][0] else label_sets()
        return httpx.Response(200, json={"status": "success", "data": there})

    with pytest.raises(NothingError, match="though without the matcher there are some"):
        ask(unmatched, scope=Scope(START, END, matchers.parse('job="x"')))


@pytest.mark.parametrize("text", ["host:9090", "ftp://x", "http://", "http://u:p@h", "http://h/api/v1", "http://h?x=1", "http://h:x", ""])
def test_urls_that_are_none(text: str) -> None:
    """The message gives an example and repeats no password."""
    with pytest.raises(ConfigError) as failed:
        parse_url(text)
    assert "u:p" not in str(failed.value)


def test_urls() -> None:
    """A path is kept, as Mimir has one."""
    assert parse_url("https://mimir/prometheus/") == "https://mimir/prometheus"


@pytest.mark.parametrize("text", ["", "a", 'a=="b"', "a=b", 'a="b" c="d"', 'a="b', '__name__="x"', 'a="b"} or {x="y"', 'a-b="c"'])
def test_matchers_that_are_none(text: str) -> None:
    """Nothing but matchers gets through."""
    with pytest.raises(ConfigError, match="--match"):
        matchers.parse(text)


@settings(deadline=None)  # speed is not what is tested
@given(st.lists(st.tuples(st.sampled_from(["a", "job"]), st.sampled_from(["=", "!=", "=~", "!~"]), st.text()), min_size=1, max_size=3))
def test_matchers_round_trip(parts: list[tuple[str, str, str]]) -> None:
    """Whatever a value holds, it is quoted and read as itself."""
    made = tuple(matchers.Matcher(*part) for part in parts)
    assert matchers.parse(matchers.selector(made)) == made


@settings(deadline=None)  # speed is not what is tested
@given(st.lists(st.tuples(st.floats(0, 4e9), st.floats()), max_size=30))
def test_samples_are_what_json_and_float_say(pairs: list[tuple[float, float]]) -> None:
    """The flat reading of numbers is that of the standard library; what is infinite is so without a sign, and NaN is no sample."""
    spell = {np.inf: "+Inf", -np.inf: "-Inf"}
    body = json.dumps(
        {
            "status": "success",
            "data": {
                "resultType": "matrix",
                "result": [{"metric": {"__name__": "x"}, "values": [[t, "NaN" if v != v else spell.get(v, repr(v))] for t, v in pairs]}],
            },
        }
    ).encode()
    ((series,), warnings) = matrix.matrix(body)
    assert not warnings
    kept = [(t, v) for t, v in pairs if not np.isnan(v)]
    assert series.times.tolist() == [t for t, _ in kept]
    assert series.values.tolist() == [v if np.isfinite(v) else np.inf for _, v in kept]


@settings(deadline=None)  # speed is not what is tested
@given(st.binary(max_size=60))
def test_any_body_is_an_error_or_an_answer(body: bytes) -> None:
    """Whatever a proxy sends, nothing but PrometheusError comes out."""
    with pytest.raises(errors.PrometheusError):
        ask(lambda _: httpx.Response(200, content=body))


def test_an_answer_is_not_written_out() -> None:
    """Its text holds no window, however many there are: asyncio.run makes that text twice and throws it away."""
    windows = tuple(Window(Model(str(n), "sglang"), np.arange(3.0), (0,), {"running_requests": np.ones((1, 2))}, 3) for n in range(50))
    assert len(repr(Answer(windows))) < 200
