"""What is read out of a server is what was scraped."""

from __future__ import annotations

import asyncio

import httpx
import numpy as np
import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import backfill
from collector.capture import read_capture
from collector.engines import sglang_metrics, vllm_metrics
from collector.errors import ConfigError
from collector.intake import Intake
from collector.model import Source
from collector.prometheus import read
from collector.prometheus.answer import PrometheusError
from collector.prometheus.client import Client, Server
from collector.prometheus.queries import QUERIES, matchers, named
from diagnose.engine import diagnose

SERVER = Server("http://prometheus:9090")


def past(server, start, end, match=""):
    async def ask():
        async with Client(SERVER, httpx.MockTransport(server)) as client:
            return await read.fetch(client, start, end, match)

    return asyncio.run(ask())


def live(capture, start, end, every, sources=(Source.SGLANG_METRICS,)):
    """The window of a live reading of the same pages."""
    intake, last = Intake(depth_s=200.0), {}
    for page in read_capture(capture):
        if page.source in sources and page.arrived >= last.get(page.source, 0) + every - 1e-6:
            last[page.source] = page.arrived
            intake.feed(page)
    return intake.window(intake.engines()[0], (end - start) / 1000, end / 1000)


def test_the_window_is_the_one_of_a_live_reading(captured, span, fake):
    """Every signal, rank and interval of a metrics page read live is there again, to the last digit of the samples' times (1 ms)."""
    capture = captured("slow_rank")
    (window,) = read.windows(past(fake(backfill.scraped(capture, 5.0)), *span), *span)
    expected = live(capture, *span, 5.0)
    assert window.engine.facts == expected.engine.facts
    np.testing.assert_allclose(window.edges, expected.edges, atol=1e-3)
    assert window.values.keys() == expected.values.keys()
    for signal, values in expected.values.items():
        np.testing.assert_allclose(window.values[signal], values, rtol=1e-6, err_msg=signal)


def test_pieces_of_the_span_join_without_loss_or_repetition(captured, span, monkeypatch, fake):
    """A span asked for in many pieces gives the window of the whole one: the sample on a common edge counts once."""
    table = backfill.scraped(captured("slow_rank"), 1.0)
    whole, pieces = fake(table), fake(table)
    (expected,) = read.windows(past(whole, *span), *span)
    monkeypatch.setattr(read, "CHUNK", 200)
    (window,) = read.windows(past(pieces, *span), *span)
    assert len(pieces.queries) > len(whole.queries) + 20
    for signal, values in expected.values.items():
        np.testing.assert_array_equal(window.values[signal], values, err_msg=signal)


@pytest.mark.parametrize("fault", [None, "slow_rank", "context_length_skew", "expert_hotspot"])
def test_a_sidecars_series_give_the_verdict_of_the_capture(captured, span, fault, fake):
    """Our exporter's series hold /v1/loads too: class, cause and ranks are the capture's, the lost time within a hundredth."""
    capture = captured(fault)
    both = live(capture, *span, 1.0, (Source.SGLANG_METRICS, Source.SGLANG_LOADS))
    table = backfill.exported(capture, 5.0) | backfill.scraped(capture, 5.0)
    (window,) = read.windows(past(fake(table), *span), *span)
    assert window.engine.id == "http://127.0.0.1:30000"
    seen, expected = diagnose(window).verdict, diagnose(both).verdict
    assert (seen.klass, seen.cause, seen.ranks) == (expected.klass, expected.cause, expected.ranks)
    assert seen.lost_time.share == pytest.approx(expected.lost_time.share, abs=0.01)


def test_without_loads_a_healthy_engine_is_not_called_healthy(captured, span, fake):
    """The engine's metrics alone leave rules without their signals: insufficient, and a note names what is missing and how it is had."""
    (window,) = read.windows(past(fake(backfill.scraped(captured(None), 5.0)), *span), *span)
    assert diagnose(window).verdict.klass.value == "insufficient-evidence"
    assert read.LOADS in {problem.what for problem in window.problems}


def test_a_metric_that_the_server_refuses_costs_only_itself(captured, span, fake):
    """One query fails with 422: the others are read, and the window says what is not, in the server's words."""
    server = fake(backfill.scraped(captured("slow_rank"), 5.0))
    words = b'{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}'
    server.fails['forward_execution_seconds_total"'] = httpx.Response(422, content=words)
    (window,) = read.windows(past(server, *span), *span)
    assert "forward_time" not in window.values
    assert "sync_wait" in window.values
    (told,) = [problem for problem in window.problems if problem.where == "forward_execution_seconds_total"]
    assert "forward_time" in told.what
    assert "too many samples" in told.what
    assert "--since" in told.what


def test_a_server_without_engines_has_none(span, fake):
    """No series: no engine, and no query for samples."""
    server = fake({})
    assert past(server, *span).engines == ()
    assert all(query.startswith("count by") for query in server.queries)


def test_all_fail_is_an_error(captured, span, fake):
    """Nothing came of anything that was asked: an error, never an empty past."""
    server = fake(backfill.scraped(captured("slow_rank"), 5.0))
    server.fails["[120000ms]"] = httpx.Response(503, content=b"")
    with pytest.raises(PrometheusError, match="HTTP 503"):
        past(server, *span)


def test_a_partial_answer_is_told(captured, span, fake, matrix):
    """What a server warns of (Thanos: a store did not answer) stands in the window."""
    table = backfill.scraped(captured("slow_rank"), 5.0)
    server = fake(table)
    rows = [
        {"metric": {"__name__": name, **dict(labels)}, "values": [[t, repr(v)] for t, v in samples]}
        for (name, labels), samples in table.items()
        if name == "sglang:forward_execution_seconds_total"
    ]
    server.fails['forward_execution_seconds_total"}['] = matrix(rows, warnings=["store \x1b[31m down"])
    (window,) = read.windows(past(server, *span), *span)
    assert "the server warns: store  [31m down" in {problem.what for problem in window.problems}


def test_every_series_that_a_page_is_read_for_is_asked_for():
    """No row of the engines' tables is without its query, and every query is PromQL."""
    asked = {(query.kind, query.metric) for query in QUERIES}
    rows = (*sglang_metrics.ROWS, *sglang_metrics.ENGINE_ROWS)
    assert {("sglang", name) for row in rows for name in row.names} <= asked
    assert {("vllm", name) for row in vllm_metrics.ROWS for name, _ in row.names} <= asked
    for query in QUERIES:
        promql_parser.parse(query.samples('cluster="a"', 1000))
    promql_parser.parse(named(QUERIES, 'cluster="a"'))


@given(st.text(max_size=30))
def test_no_matcher_escapes_its_selector(text):
    """Whatever a person gives with --match is refused, or stays a list of matchers inside one selector."""
    try:
        made = matchers([text])
    except ConfigError:
        return
    parsed = promql_parser.parse('{x="y"' + ("," + made if made else "") + "}")
    assert type(parsed).__name__ == "VectorSelector"


def test_matchers_are_kept_as_given():
    """Several of them, with every operator, quotes escaped."""
    assert matchers(['cluster="a", pod=~"x.*"', 'job!="\\""']) == 'cluster="a",pod=~"x.*",job!="\\""'
    with pytest.raises(ConfigError, match="no label matcher"):
        matchers(['cluster="a"} or up{x="'])
