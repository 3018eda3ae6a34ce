"""Every bad answer: a message that names the server, what was seen and the next step, and no token."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from collector.errors import ConfigError
from collector.prometheus import client as room
from collector.prometheus.answer import PrometheusError
from collector.prometheus.client import Client, Server, parse_server

TOKEN = "s3cret"
URL = "http://prometheus:9090/api/v1/query"
SERIES = {"metric": {"__name__": "up", "a": "b"}, "values": [[1.5, "2"], [2.5, "NaN"]]}


def ask(reply, token=None):
    """The answer to one query; `reply` is what the server does with it."""

    async def run():
        async with Client(Server("http://prometheus:9090", token), httpx.MockTransport(reply)) as client:
            return await client.query("up", 1500)

    return asyncio.run(run())


def body(*rows, kind="matrix"):
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": rows}}).encode()


def refused(words, kind="execution"):
    return json.dumps({"status": "error", "errorType": kind, "error": words}).encode()


@pytest.mark.parametrize(
    ("status", "content", "seen", "then"),
    [
        (401, b"", "HTTP 401", "--token-env"),
        (403, b"<html>", "HTTP 403", "--token-file"),
        (404, b"404 page not found", "HTTP 404", "base URL with its prefix"),
        (400, refused("parse error: unexpected \x1b[31m", "bad_data"), "bad_data: parse error: unexpected  [31m", "--match"),
        (422, refused("query processing would load too many samples into memory in query execution"), "too many samples", "--since"),
        (422, refused("expanding series: context canceled"), "context canceled", "--match"),
        (429, b"", "HTTP 429", "ask again later"),
        (503, refused("query timed out in expression evaluation", "timeout"), "query timed out", "--since"),
        (504, b"<html>gateway</html>", "HTTP 504", "--since"),
        (500, refused("x" * 5000, "internal"), "internal: xxx", "server's log"),
        (302, b"", "HTTP 302", "final URL"),
        (200, b"<!DOCTYPE html>", "HTML", "a proxy or a login page"),
        (200, body(SERIES)[:-30], "JSON that is cut off", "ask again"),
        (200, b"", "no answer of Prometheus, 0 bytes", "base URL"),
        (200, b'{"up":1}', "no answer of Prometheus", "base URL"),
        (200, body(kind="scalar"), "'scalar'", "API of Prometheus"),
        (200, b'{"status":"error","data":{"resultType":"matrix","result":[]}}', "'error'", "server's log"),
    ],
)
def test_a_bad_answer_says_what_was_seen_and_what_to_do(status, content, seen, then):
    """The status or the shape, the server's own words without control characters and cut short, the next step."""
    headers = {"location": "http://login/"} if status == 302 else {}
    with pytest.raises(PrometheusError) as caught:
        ask(lambda _: httpx.Response(status, content=content, headers=headers), TOKEN if status == 500 else None)
    message = str(caught.value)
    assert message.startswith(URL)
    assert seen in message
    assert then in message
    assert len(message) < 700
    assert TOKEN not in message


@pytest.mark.parametrize(
    ("failure", "seen"),
    [
        (httpx.ConnectError("refused"), "cannot be reached"),
        (httpx.ReadTimeout("slow"), "no complete answer within 35 s"),
        (httpx.ReadError("reset"), "the connection broke"),
        (httpx.RemoteProtocolError("cut"), "the connection broke"),
    ],
)
def test_a_server_that_gives_no_answer_is_named(failure, seen):
    """The URL and the kind of failure, never the library's words, which may hold headers."""

    def fail(_):
        raise failure

    with pytest.raises(PrometheusError, match=seen) as caught:
        ask(fail, TOKEN)
    assert URL in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_wrong_token_is_not_called_a_missing_one():
    """With a token, 401 means that it is not the right one."""
    with pytest.raises(PrometheusError, match="the token is not one that it takes"):
        ask(lambda _: httpx.Response(401), TOKEN)


def test_too_large_an_answer_is_not_kept(monkeypatch):
    """An answer without end is cut, and the message says how to ask for less."""
    monkeypatch.setattr(room, "MAX_BYTES", 10)
    with pytest.raises(PrometheusError, match="more than 10 bytes; narrow it"):
        ask(lambda _: httpx.Response(200, content=body(SERIES)))


def test_the_token_goes_into_the_header_and_a_get_is_tried_where_post_is_forbidden():
    """A proxy that lets only GET pass is asked again that way, and from then on."""
    seen = []

    def only_get(request):
        seen.append((request.method, request.headers["authorization"]))
        return httpx.Response(200, content=body(SERIES)) if request.method == "GET" else httpx.Response(405)

    (series,) = ask(only_get, TOKEN).series
    assert seen == [("POST", f"Bearer {TOKEN}"), ("GET", f"Bearer {TOKEN}")]
    assert (series.name, series.labels, series.times.tolist(), series.values[0]) == ("up", {"a": "b"}, [1500, 2500], 2.0)


def test_infinities_are_read():
    """Prometheus writes +Inf and -Inf as words, in the values of any gauge."""
    (series,) = ask(lambda _: httpx.Response(200, content=body({"metric": {}, "values": [[1, "+Inf"], [2, "-Inf"], [3, "1e3"]]}))).series
    assert series.values.tolist() == [float("inf"), float("-inf"), 1000.0]


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("prometheus:9090", "http://prometheus:9090"),
        ("https://Mimir/prometheus/", "https://mimir/prometheus"),
        ("http://p:9090/graph", "http://p:9090"),
        ("http://p/x/api/v1/query", "http://p/x"),
    ],
)
def test_a_servers_url_is_its_base(text, url):
    """What one copies from a browser or from documentation leads to the base URL."""
    assert parse_server(text) == url


@pytest.mark.parametrize("text", ["", "ftp://p", "http://", "http://p:0", "http://p q", "http://user:pw@p", "http://p?x=pw", "http://p:x"])
def test_what_is_no_server_is_refused(text):
    """A wrong URL is a usage error; a password in it is not repeated."""
    with pytest.raises(ConfigError, match="--prometheus") as caught:
        parse_server(text)
    assert "pw" not in str(caught.value)


def test_certificates_that_cannot_be_read_are_usage_errors(tmp_path):
    """The option, the file and why."""
    (tmp_path / "x.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"--ca-file .*x\.pem: no certificates"):
        Client(Server("https://p", ca_file=str(tmp_path / "x.pem")))
    with pytest.raises(ConfigError, match=r"--cert-file .*x\.pem: no certificate and key"):
        Client(Server("https://p", cert_file=str(tmp_path / "x.pem")))
