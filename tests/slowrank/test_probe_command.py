"""`slowrank probe` against engines that are played here, page by page, and once against a real cluster that serves."""

from __future__ import annotations

import json
import random
import time

import httpx
import pytest
from typer.testing import CliRunner

from collector.errors import ConfigError, SourceError
from slowrank import probing
from slowrank.app import app
from workload.cluster import Cluster
from workload.config import ClusterConfig

URL = "http://h:30000"


class Engine:
    """Plays SGLang (or vLLM) with two ranks. `counts`: whose counter a prompt for rank r raises; `status`: of the answer to a prompt."""

    def __init__(
        self, *, vllm: bool = False, status: int = 200, waiting: int = 0, counts=lambda rank: rank, share: float = 1.0, key: str = ""
    ):
        self.vllm, self.status, self.waiting, self.counts, self.share, self.key = vllm, status, waiting, counts, share, key
        self.prefilled = [0.0, 0.0]
        self.asked: list[tuple[int, list[int]]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return httpx.Response(401, json={"error": "Unauthorized"})
        match request.url.path:
            case "/v1/loads" if not self.vllm:
                loads = [{"dp_rank": r, "timestamp": 1.8e9, "num_running_reqs": 1, "num_waiting_reqs": self.waiting} for r in range(2)]
                for entry, done in zip(loads, self.prefilled, strict=True):
                    entry["total_prefill_uncached_tokens"] = done
                return httpx.Response(200, json={"timestamp": "2026-11-30T00:00:00+00:00", "version": "0.5.23", "loads": loads})
            case "/metrics" if self.vllm:
                lines = [f'vllm:num_requests_running{{engine="{r}",model_name="m"}} 1.0' for r in range(2)]
                for r, done in enumerate(self.prefilled):
                    lines.append(f'vllm:prompt_tokens_by_source_total{{engine="{r}",model_name="m",source="local_compute"}} {done}')
                return httpx.Response(200, text="\n".join(lines) + "\n")
            case "/generate" if not self.vllm:
                body = json.loads(request.content)
                return self._answer(body["routed_dp_rank"], body["input_ids"])
            case "/v1/completions" if self.vllm:
                assert json.loads(request.content)["model"] == "m"
                return self._answer(int(request.headers["x-data-parallel-rank"]), json.loads(request.content)["prompt"])
        return httpx.Response(404)

    def _answer(self, rank: int, tokens: list[int]) -> httpx.Response:
        if self.status != 200:
            return httpx.Response(self.status, text="no such \x1b[31mrank")
        self.asked.append((rank, tokens))
        self.prefilled[self.counts(rank)] += self.share * len(tokens)
        return httpx.Response(200, text='data: {"text": ""}\n\ndata: [DONE]\n\n')


def connected(engine: Engine, key: str = "") -> probing.Engine:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    client = httpx.Client(base_url=URL, transport=httpx.MockTransport(engine), headers=headers)
    return probing.Engine(client, "h:30000", random.Random(1))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting of half a minute for what never comes."""
    monkeypatch.setattr(probing, "QUEUE_S", 0.05)
    monkeypatch.setattr(probing, "LOOK_S", 0.01)
    monkeypatch.setattr(probing, "_PAGE_S", 0.05)


@pytest.mark.parametrize("vllm", [False, True])
def test_prompts_are_pinned_alike_and_begin_fresh(vllm: bool) -> None:
    """Each engine is asked in its own way; prompts differ in their first 64 tokens alone, so no cache has any of a prompt."""
    played = Engine(vllm=vllm)
    engine = connected(played)
    assert engine.ranks == (0, 1)
    assert [engine.ask(rank, 1000).tokens for rank in (1, 0, 1)] == [1000, 1000, 1000]
    assert [rank for rank, _ in played.asked] == [1, 0, 1]
    prompts = [tokens for _, tokens in played.asked]
    assert len({tuple(p[:16]) for p in prompts}) == 3
    assert len({tuple(p[64:]) for p in prompts}) == 1
    assert all(10 <= token < 250 for p in prompts for token in p)


def test_a_prompt_is_held_against_all_that_its_rank_prefilled() -> None:
    """Others' tokens took their part of the time: twice the tokens in a second are half a second a prompt."""
    assert probing.Probe(0, 1.0, 2000).pace == probing.Probe(0, 0.5, 1000).pace


@pytest.mark.parametrize(
    ("engine", "error", "words"),
    [
        (Engine(status=404), ConfigError, "takes no prompts"),
        (Engine(status=400), ConfigError, "does it know the field routed_dp_rank"),
        (Engine(vllm=True, status=400), ConfigError, "does it know the header X-data-parallel-rank"),
        (Engine(status=503), probing.AbstainedError, "takes no more work"),
        (Engine(waiting=3), probing.AbstainedError, "3 requests have waited on rank 1"),
        (Engine(counts=lambda rank: 0), SourceError, "does not honour .* computed on rank 0"),
        (Engine(share=0.1), SourceError, "caches prompts"),
    ],
)
def test_what_stands_in_the_way_is_named(engine: Engine, error: type[Exception], words: str) -> None:
    """Each with what to do; none is a verdict."""
    with pytest.raises(error, match=words):
        connected(engine).ask(1, 500)


def test_a_key_is_asked_for_and_sent() -> None:
    """401 names the option; with the key it goes through."""
    with pytest.raises(ConfigError, match="--api-key-env"):
        connected(Engine(key="k"))
    assert connected(Engine(key="k"), "k").ask(0, 500).rank == 0


def test_an_engine_that_is_none_or_has_one_rank_is_refused() -> None:
    """A page of neither engine, and a page of one rank."""
    with pytest.raises(ConfigError, match="neither SGLang's"):
        connected(lambda _request: httpx.Response(404))  # type: ignore[arg-type]
    one = {"loads": [{"dp_rank": 0, "num_running_reqs": 0, "num_waiting_reqs": 0}]}
    with pytest.raises(ConfigError, match="shows 1 rank"):
        connected(lambda _request: httpx.Response(200, json=one))  # type: ignore[arg-type]


def test_nothing_is_sent_before_the_answer_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would cost is shown: 16 rounds of 2 ranks; no is exit 3."""
    played = Engine()
    client = httpx.Client(base_url=URL, transport=httpx.MockTransport(played))
    monkeypatch.setattr(probing, "connect", lambda _target: client)
    done = CliRunner().invoke(app, ["probe", "h:30000", "--tokens", "1000"], input="n\n")
    assert "At most 32 requests (32,000 tokens)" in done.output
    assert (done.exit_code, played.asked) == (3, [])


def test_help_says_what_it_finds_what_not_and_that_it_gives_work() -> None:
    """Before anybody uses it."""
    said = " ".join(CliRunner().invoke(app, ["probe", "--help"]).output.split())
    for part in ("Never runs by itself", "fixed delay in every step", "gives the engine work", "0 no rank is slower"):
        assert part in said


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_a_card_without_a_fifth_of_its_clock_is_named_while_the_group_serves() -> None:
    """On four virtual ranks with chat traffic, within the most requests that are stated; afterwards no prompt is left behind. A client
    that goes away leaves none either, and a rank that does not exist is refused."""
    with Cluster(ClusterConfig(ranks=4)) as cluster:
        cluster.inject("gpu_throttled", rank=2, severity=0.2 / 0.7)
        done = CliRunner().invoke(app, ["probe", cluster.url, "--yes", "--format", "json"])
        found = json.loads(done.stdout)
        assert (done.exit_code, found["outcome"], found["ranks"]) == (1, "slow", [2])
        assert found["requests"] <= 64
        body = {"input_ids": [20] * 200_000, "sampling_params": {"max_new_tokens": 1}, "stream": True, "routed_dp_rank": 1}
        with httpx.Client(base_url=cluster.url) as client:
            before = client.get("/v1/loads").json()["loads"][1]["num_used_tokens"]
            with pytest.raises(httpx.ReadTimeout):
                client.post("/generate", json=body, timeout=1.0)
            time.sleep(1.0)
            assert client.get("/v1/loads").json()["loads"][1]["num_used_tokens"] < before + 150_000
            refused = client.post("/generate", json=body | {"routed_dp_rank": 4})
            assert (refused.status_code, "out of range [0, 4)" in refused.text) == (400, True)
