"""The server's replies are SGLang 0.5.23's, byte for byte where a page was captured."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from workload.face.app import create_app
from workload.face.loads import (
    DisaggregationSection,
    LoadSnapshot,
    MemorySection,
    QueuesSection,
    SnapshotWriter,
    SpeculativeSection,
)

CAPTURED = json.loads((Path(__file__).parents[1] / "captures" / "sglang-0.5.23" / "v1-loads.json").read_text())
DRIVER = Path(__file__).with_name("drive_face.py")
WALL_CLOCK = re.compile(rb'^\{"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00"')

MEMORY = MemorySection(84.213, 28.667, 2.114, 449792)
BUSY = LoadSnapshot(
    timestamp=1795996805.3795772,
    dp_rank=0,
    num_running_reqs=52,
    num_waiting_reqs=7,
    num_waiting_uncached_tokens=14336,
    num_used_tokens=201344,
    num_total_tokens=217216,
    num_active_tokens=217216,
    max_total_num_tokens=449792,
    max_running_requests=256,
    token_usage=0.4476,
    gen_throughput=1893.27,
    cache_hit_rate=0.4133,
    total_prefill_uncached_tokens=18834432,
    total_prefill_busy_us=412339114,
    decode_moments=(88123.0, 4273944.0, 2423382500.0, 211382204.0, 118120392000.0, 4273944.0),
    memory=MEMORY,
    disaggregation=DisaggregationSection(),
    queues=QueuesSection(waiting=7),
)
CALM = LoadSnapshot(
    timestamp=1795996805.5395772,
    dp_rank=1,
    num_running_reqs=24,
    num_used_tokens=98304,
    num_total_tokens=98304,
    num_active_tokens=98304,
    max_total_num_tokens=449792,
    max_running_requests=256,
    token_usage=0.2186,
    gen_throughput=889.5,
    total_prefill_uncached_tokens=18120448,
    total_prefill_busy_us=398220991,
    decode_moments=(88120.0, 2113221.0, 2423120100.0, 52133891.0, 58320388200.0, 2113221.0),
    memory=MEMORY,
    disaggregation=DisaggregationSection(),
    queues=QueuesSection(),
)


def server(path: Path, **changes: Any) -> FastAPI:
    """The captured server: two ranks, no accelerator, no metrics, no key."""
    settings: dict[str, Any] = {
        "loads_path": path,
        "ranks": 2,
        "accelerator": None,
        "server_info": {"workload": True, "device": "virtual"},
        "healthy": lambda: True,
        "metrics": False,
    }
    return create_app(**settings | changes)


def ask(app: FastAPI, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    async def one() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(one())


@pytest.fixture
def loads(tmp_path: Path) -> Iterator[Path]:
    """The snapshots of the capture."""
    path = tmp_path / "loads"
    writers = [SnapshotWriter(path, 2, rank) for rank in range(2)]
    for writer, snapshot in zip(writers, (BUSY, CALM), strict=True):
        writer.write(snapshot)
    yield path
    for writer in writers:
        writer.close()


def assert_as_captured(reply: httpx.Response, variant: str) -> None:
    """Status, content type and body; of the body, all but the reply's own wall clock, which must have the same shape."""
    captured = CAPTURED[variant]
    assert reply.status_code == captured["status"]
    assert reply.headers["content-type"] == captured["content_type"]
    body = captured["body"]
    wire = body.encode() if isinstance(body, str) else json.dumps(body, separators=(",", ":")).encode()
    assert WALL_CLOCK.sub(b"", reply.content) == WALL_CLOCK.sub(b"", wire)
    assert len(WALL_CLOCK.findall(reply.content)) == len(WALL_CLOCK.findall(wire))


QUERIES = {
    "full": "/v1/loads",
    "core": "/v1/loads?include=core",
    "queues": "/v1/loads?include=queues,core",
    "dp_rank=1 core": "/v1/loads?dp_rank=1&include=core",
    "dp_rank=9": "/v1/loads?dp_rank=9",
    "dp_rank=abc": "/v1/loads?dp_rank=abc",
    "bad include": "/v1/loads?include=bogus",
    "bad include+all": "/v1/loads?include=bogus,all",
    "prometheus": "/v1/loads?format=prometheus",
    "format=xml": "/v1/loads?format=xml&include=core&dp_rank=0",
}


@pytest.mark.parametrize("variant", QUERIES)
def test_loads_replies_as_captured(loads: Path, variant: str) -> None:
    """Every captured query, to the byte."""
    assert_as_captured(ask(server(loads), QUERIES[variant]), variant)


def test_loads_takes_get_only(loads: Path) -> None:
    assert_as_captured(ask(server(loads), "/v1/loads", "POST"), "POST")


def test_loads_before_any_rank_started(tmp_path: Path) -> None:
    """No ranks, and with nothing to apply it to, even an unknown section passes."""
    app = server(tmp_path / "none")
    assert_as_captured(ask(app, "/v1/loads"), "no shm file yet")
    assert_as_captured(ask(app, "/v1/loads?include=bogus"), "no shm file yet")
    assert ask(app, "/v1/loads?format=prometheus").text == "\n"


def test_loads_of_ranks_that_never_published(tmp_path: Path) -> None:
    """Zeros, with timestamp 0.0."""
    for rank in range(2):
        SnapshotWriter(tmp_path / "loads", 2, rank).close()
    assert_as_captured(ask(server(tmp_path / "loads"), "/v1/loads?include=core"), "slots created, never published")


def test_every_captured_reply_was_compared() -> None:
    """The captured file also holds encodings of other transports; all its replies have a test above."""
    replies = {name for name, captured in CAPTURED.items() if isinstance(captured, dict) and "status" in captured}
    assert replies == {*QUERIES, "POST", "no shm file yet", "slots created, never published"}


def test_an_unknown_section_makes_no_noise_in_the_log(loads: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The status is a client's fault: no exception leaves the app (the transport would raise it), and no traceback is logged."""
    caplog.set_level(logging.WARNING)
    assert ask(server(loads), "/v1/loads?include=core,bogus&format=prometheus").status_code == 500
    assert caplog.records == []


def test_section_names_may_have_spaces_and_may_be_missing(loads: Path) -> None:
    """`include=` asks for nothing in particular, so it gets everything."""
    spaced = ask(server(loads), "/v1/loads?include=queues,%20memory").json()["loads"][0]
    assert spaced.keys() & {"memory", "speculative", "lora", "disaggregation", "queues"} == {"memory", "queues"}
    assert ask(server(loads), "/v1/loads?include=").json()["loads"] == ask(server(loads), "/v1/loads").json()["loads"]


def test_speculative_numbers_have_their_short_prefix_as_prometheus_text(tmp_path: Path) -> None:
    """A section that a rank does not have is on no page: here one rank of two speculates."""
    writer = SnapshotWriter(tmp_path / "loads", 2, 1)
    writer.write(LoadSnapshot(timestamp=1.5, dp_rank=1, speculative=SpeculativeSection(2.5, 0.75)))
    reply = ask(server(tmp_path / "loads"), "/v1/loads?format=prometheus&include=spec")
    writer.close()
    assert reply.text.endswith(
        '# TYPE sglang_spec_accept_length gauge\nsglang_spec_accept_length{dp_rank="1"} 2.5\n'
        '# TYPE sglang_spec_accept_rate gauge\nsglang_spec_accept_rate{dp_rank="1"} 0.75\n'
    )


def test_the_page_says_which_device_it_ran_on(loads: Path) -> None:
    """In the field that a real server has for it, and in two fields of /server_info that a real one does not have."""
    app = server(loads, accelerator="NVIDIA H20 (virtual)", server_info={"workload": True, "device": "virtual", "attn_dp_size": 2})
    assert ask(app, "/v1/loads").json()["accelerator"] == "NVIDIA H20 (virtual)"
    for path in ("/server_info", "/get_server_info"):
        reply = ask(app, path)
        assert reply.headers["content-type"] == "application/json"
        assert reply.json() == {"workload": True, "device": "virtual", "attn_dp_size": 2, "version": "0.5.23"}


@pytest.mark.parametrize(("healthy", "status"), [(True, 200), (False, 503)])
@pytest.mark.parametrize("path", ["/health", "/health_generate"])
def test_health_follows_the_engine(tmp_path: Path, path: str, healthy: bool, status: int) -> None:
    """An empty body either way."""
    reply = ask(server(tmp_path / "loads", healthy=lambda: healthy), path)
    assert (reply.status_code, reply.content) == (status, b"")


def test_a_key_guards_what_it_guards_on_a_real_server(loads: Path) -> None:
    """Health and metrics stay open; everything else, unknown paths included, is refused before it is looked at."""
    app = server(loads, api_key="sesame")
    for path in ("/v1/loads", "/v1/loads?dp_rank=abc", "/server_info", "/nowhere"):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "sesame"}):
            refused = ask(app, path, **headers)
            assert (refused.status_code, refused.content) == (401, b'{"error":"Unauthorized"}')
    assert_as_captured(ask(app, "/v1/loads", authorization="Bearer sesame"), "full")
    assert ask(app, "/health").status_code == 200


def test_without_metrics_there_is_no_metrics_page(loads: Path) -> None:
    """404, as a server without --enable-metrics."""
    reply = ask(server(loads), "/metrics")
    assert (reply.status_code, reply.json()) == (404, {"detail": "Not Found"})


# --- with metrics: in processes of their own, because prometheus_client chooses its mode when it is first imported


@pytest.fixture(scope="module")
def with_metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, "-W", "error", str(DRIVER), "fresh", str(tmp_path_factory.mktemp("fresh"))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    replies: dict[str, Any] = json.loads(ran.stdout)
    return replies


def test_metrics_answers_with_and_without_a_slash(with_metrics: dict[str, Any]) -> None:
    """No redirect, no key."""
    for name in ("plain", "slash"):
        assert with_metrics[name]["status"] == 200
        assert 'sglang:page_size{dp_rank="1",' in with_metrics[name]["text"]


def test_the_server_counts_its_own_requests(with_metrics: dict[str, Any]) -> None:
    """By matched route or bare path, refusals included; the request that fetches the page is already counted and still active."""
    page = with_metrics["after"]["text"]
    for line in (
        'sglang:http_requests_total{endpoint="/metrics",method="GET"} 5.0',
        'sglang:http_responses_total{endpoint="/metrics",method="GET",status_code="200"} 4.0',
        'sglang:http_requests_active{endpoint="/metrics",method="GET"} 1.0',
        'sglang:http_responses_total{endpoint="/v1/loads",method="GET",status_code="401"} 1.0',
        'sglang:http_responses_total{endpoint="/v1/loads",method="GET",status_code="200"} 1.0',
        'sglang:http_requests_active{endpoint="/v1/loads",method="GET"} 0.0',
        'sglang:http_responses_total{endpoint="/nowhere",method="GET",status_code="404"} 1.0',
        "sglang:routing_keys_active 0.0",
        'sglang:get_loads_duration_seconds_count{engine_type="unified",model_name="deepseek-ai/DeepSeek-V3"} 1.0',
    ):
        assert f"\n{line}\n" in page
