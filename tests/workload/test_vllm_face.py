"""The pages of a vLLM cluster are held against those that a real vLLM 0.32.0 served; what is booked when follows vLLM's traps."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from workload.face.vllm import Life, VllmMetrics, grouped
from workload.face.vllm_app import create_app

CAPTURES = Path(__file__).parent.parent / "captures" / "vllm-0.32.0"
SINGLE, SEVERAL = CAPTURES / "slowdense-1.prom", CAPTURES / "1.prom"  # one API server, and two
_SAMPLE = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

# Left out on purpose, with the reason.
LEFT_OUT = {
    "dpx_": "series of a plug-in that ran in the captured server, none of vLLM's",
    "http_": "the cluster's own requests do not come over HTTP, and vLLM counts no scrapes",
}
CAPTURED_MAX_MODEL_LEN = 1024  # --max-model-len of the captured servers; the cluster's models take 262,144


@dataclass
class Shown:
    kind: str
    labels: set[frozenset[str]] = field(default_factory=set)
    values: set[frozenset[tuple[str, str]]] = field(default_factory=set)  # of labels that neither name nor measure
    bounds: set[float] = field(default_factory=set)


def families(text: str) -> dict[str, Shown]:
    """What a page declares and shows, by family."""
    found: dict[str, Shown] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found[name] = Shown(kind)
        elif not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match is not None, line
            labels = dict(_LABEL.findall(match[2] or ""))
            if "le" in labels:
                found[name].bounds.add(float(labels.pop("le")))
            found[name].labels.add(frozenset(labels))
            enums = ("reason", "source", "sleep_state", "finished_reason", "generation")
            found[name].values.add(frozenset((k, v) for k, v in labels.items() if k in enums))
    return {name: shown for name, shown in found.items() if not name.startswith(tuple(LEFT_OUT))}


def assert_like_the_capture(text: str, capture: Path) -> None:
    ours, theirs = families(text), families(capture.read_text())
    assert set(ours) == set(theirs)
    for name, shown in theirs.items():
        mine = ours[name]
        assert (name, mine.kind) == (name, shown.kind)
        assert (name, mine.labels) == (name, shown.labels)
        assert (name, mine.values) == (name, shown.values)
        if max(shown.bounds - {float("inf")}, default=0.0) == 1000.0:  # a token histogram: the 1-2-5 series up to --max-model-len
            assert {b for b in mine.bounds if b <= CAPTURED_MAX_MODEL_LEN} | {float("inf")} == shown.bounds
            assert max(mine.bounds - {float("inf")}) == 200_000
        else:
            assert (name, mine.bounds) == (name, shown.bounds)


@pytest.fixture
def metrics():
    return VllmMetrics(model_name="m", engines=2, kv_tokens=1600, max_model_len=262_144, multiprocess=False)


def sample(metrics: VllmMetrics, name: str, engine: int = 0, **more: str) -> float:
    for line in metrics.page().decode().splitlines():
        match = _SAMPLE.match(line)
        if match is not None and match[1] == f"vllm:{name}":
            labels = dict(_LABEL.findall(match[2] or ""))
            if labels == {"engine": str(engine), "model_name": "m", **more}:
                return float(match[3])
    raise AssertionError(f"no {name} of engine {engine} with {more}")


def test_one_api_servers_page_is_the_captured_one(metrics):
    """Before any request every family is there with its type, labels, label values and bounds, `_created` and the process's too."""
    assert_like_the_capture(metrics.page().decode(), SINGLE)


def test_several_api_servers_page_is_the_captured_one(tmp_path):
    """In multiprocess mode the same families, without `_created` and the process's own. Gauges come with an engine's first output:
    nobody has written them before."""
    script = """
from workload.face.vllm import VllmMetrics
metrics = VllmMetrics(model_name="m", engines=2, kv_tokens=1600, max_model_len=262_144, multiprocess=True)
before = metrics.page().decode()
assert "vllm:num_requests_running{" not in before, before
assert "vllm:generation_tokens_total{" in before, before
for engine in range(2):
    metrics.scheduler(engine, running=1, waiting=0, kv_usage=0.5, queries=10, hits=5)
print(metrics.page().decode())
"""
    env = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    text = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout
    assert_like_the_capture(text.strip(), SEVERAL)


def test_the_way_prometheus_client_was_imported_must_fit():
    """It decides at its first import; the other way the page would be empty or of the wrong shape."""
    with pytest.raises(RuntimeError, match="imported without PROMETHEUS_MULTIPROC_DIR"):
        VllmMetrics(model_name="m", engines=2, kv_tokens=1600, max_model_len=262_144, multiprocess=True)


def test_a_prompt_is_counted_whole_at_its_first_token(metrics):
    """Cached tokens are part of prompt_tokens; the two sources add up to it."""
    metrics.first_token(1, prompt=1000, cached=300, ttft=0.5)
    assert sample(metrics, "prompt_tokens_total", 1) == 1000
    assert sample(metrics, "prompt_tokens_by_source_total", 1, source="local_compute") == 700
    assert sample(metrics, "prompt_tokens_by_source_total", 1, source="local_cache_hit") == 300
    assert sample(metrics, "prompt_tokens_cached_by_source_total", 1, source="device") == 300
    assert sample(metrics, "time_to_first_token_seconds_sum", 1) == 0.5
    assert sample(metrics, "prompt_tokens_total", 0) == 0
    assert sample(metrics, "e2e_request_latency_seconds_count", 1) == 0


def test_gaps_of_one_step_are_one_observation_per_request(metrics):
    """Three requests that all waited 40 ms: three in the bucket up to 50 ms and none in the one up to 25 ms, 120 ms in the sum."""
    assert grouped([0.04, 0.04, 0.3, 0.04]) == {0.04: 3, 0.3: 1}
    metrics.gaps(0, 0.04, 3)
    metrics.gaps(0, 0.05, 1)  # a bound belongs to its bucket
    assert sample(metrics, "inter_token_latency_seconds_bucket", le="0.05") == 4
    assert sample(metrics, "inter_token_latency_seconds_bucket", le="0.025") == 0
    assert sample(metrics, "inter_token_latency_seconds_sum") == pytest.approx(0.17)


def test_a_finished_request_leaves_its_times(metrics):
    """Time per output token is the decode time over all tokens but the first, and 0 for an answer of one token."""
    metrics.finished(0, Life(prompt=100, cached=40, generated=11, preemptions=2, e2e=3.5, queue=0.5, prefill=0.7, decode=2.0))
    metrics.finished(0, Life(prompt=10, cached=0, generated=1, preemptions=0, e2e=0.1, queue=0.0, prefill=0.1, decode=0.0))
    assert sample(metrics, "request_time_per_output_token_seconds_sum") == pytest.approx(0.2)
    assert sample(metrics, "request_time_per_output_token_seconds_bucket", le="0.01") == 1
    assert sample(metrics, "request_inference_time_seconds_sum") == pytest.approx(2.8)
    assert sample(metrics, "request_prefill_kv_computed_tokens_sum") == 70
    assert sample(metrics, "request_num_preemptions_sum") == 2
    assert sample(metrics, "request_success_total", finished_reason="length") == 2


def test_the_server_has_vllms_routes_and_none_of_sglangs(metrics):
    """/health and /ping are 200 whatever the engines do; /v1/loads does not exist."""
    app = create_app(version="0.32.0", page=metrics.page)

    async def ask(*paths: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return [await client.get(path) for path in paths]

    health, ping, version, load, loads, page = asyncio.run(ask("/health", "/ping", "/version", "/load", "/v1/loads", "/metrics"))
    assert (health.status_code, ping.status_code, loads.status_code) == (200, 200, 404)
    assert version.json() == {"version": "0.32.0"}
    assert load.json() == {"server_load": 0}
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
