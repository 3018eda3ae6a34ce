"""Real rank processes and a frontend, driven by a script instead of an engine: prints what a scraper gets, as JSON.

usage: drive_face.py SCENARIO MULTIPROC_DIR. One process per rank, because prometheus_client keeps one file per process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

MODEL = "deepseek-ai/DeepSeek-V3"
os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[2]  # before anything imports prometheus_client

import httpx  # noqa: E402

from workload.face.app import create_app  # noqa: E402
from workload.face.metrics import ExpertMetrics, LoggedStats, SchedulerMetrics, TokenizerMetrics  # noqa: E402


def scheduler(rank: int, ranks: int) -> SchedulerMetrics:
    metrics = SchedulerMetrics(model_name=MODEL, rank=rank, ranks=ranks)
    metrics.constants(max_total_num_tokens=450000, weight_gb=84.2, kv_cache_gb=28.7, graph_gb=2.1, page_size=64, context_len=163840)
    return metrics


def captured_load(step: int) -> tuple[list[int], list[int]]:
    """Tokens and pairs per rank, drawn as the capture tp8-dp8-ep8-t1 drew them for SGLang's own collectors."""
    rng = random.Random(step)
    tokens = [rng.randint(20, 28) for _ in range(8)]
    tokens[0] += 24
    if step % 10 == 0:
        tokens[-1] = 0
    return tokens, [t * rng.randint(3000, 5000) for t in tokens]


def as_captured(rank: int) -> None:
    """What the capture did to SGLang's collectors on one of 8 ranks, done to ours."""
    metrics = scheduler(rank, 8)
    metrics.tick(0.0)
    begun = time.process_time()
    for step in range(400):
        tokens, pairs = captured_load(step)
        metrics.stage("recv_requests", 0.0004, "full")
        metrics.stage("get_next_batch_to_run", 0.0012, "full")
        metrics.stage("run_batch", 0.0041, "full")
        metrics.stage("process_batch_result", 0.021, "full")
        metrics.stage("other", 0.0003, "partial")
        metrics.forward("decode" if tokens[rank] else "idle", 0.0252)
        metrics.step(all_tokens=tokens, all_pairs=pairs, sync_wait=0.0002 if rank == 0 else 0.0031)
        if tokens[rank]:
            metrics.decode_pass(graph=True)
            metrics.realtime("decode", tokens[rank], 0)
        if step % 40 == 0:
            usage = round(pairs[rank] / 450000, 2)
            metrics.log(
                LoggedStats(
                    num_running_reqs=tokens[rank],
                    num_queue_reqs=7 if rank == 0 else 0,
                    gen_throughput=tokens[rank] / 0.027,
                    token_usage=usage,
                    full_token_usage=usage,
                    num_used_tokens=pairs[rank],
                    kv_used_tokens=pairs[rank],
                    decode_sum_seq_lens=pairs[rank],
                    fwd_occupancy=93.4,
                )
            )
        metrics.tick(step * 0.0252)
    cost = (time.process_time() - begun) / 400
    (Path(sys.argv[2]) / f"cost_{rank}.txt").write_text(str(cost))
    metrics.tick(1e9)
    if rank == 0:
        experts = ExpertMetrics(model_name=MODEL, ranks=8)
        for _ in range(50):
            experts.balancedness("decode", 0.71)
        for layer in (3, 4):
            experts.dispatched(layer, [100 * (g + 1) for g in range(8)])


def as_captured_frontend() -> None:
    tokenizer = TokenizerMetrics(model_name=MODEL)
    for _ in range(20):
        tokenizer.first_token(0.35)
        tokenizer.finished(prompt_tokens=1200, cached_tokens=512, generation_tokens=300, ttft=0.35, e2e=0.35 + 299 * 0.027)
        tokenizer.inter_token(0.027, 1)


def everything_frontend() -> None:
    tokenizer = TokenizerMetrics(model_name=MODEL)
    tokenizer.inter_token(0.06, 3)  # three at once, 20 ms each
    tokenizer.inter_token(10.0, 1)  # beyond the last bound
    tokenizer.inter_token(1.0, 0)
    tokenizer.first_token(0.05)
    tokenizer.finished(prompt_tokens=64, cached_tokens=0, generation_tokens=1, ttft=0.05, e2e=0.05)


def fresh(rank: int) -> None:
    scheduler(rank, 2)


def alone(rank: int) -> None:
    metrics = scheduler(rank, 1)
    metrics.step(all_tokens=[4], all_pairs=[32768], sync_wait=0.001)


def one_long_context(rank: int) -> None:
    """8 ranks with 4 requests each, contexts of 8192 tokens, but one of 204,800 on rank 0: 10 decode steps, and one of nobody."""
    metrics = scheduler(rank, 8)
    pairs = [204800 + 3 * 8192, *[4 * 8192] * 7]
    for _ in range(10):
        metrics.step(all_tokens=[4] * 8, all_pairs=pairs, sync_wait=0.002)
    metrics.step(all_tokens=[0] * 8, all_pairs=[0] * 8, sync_wait=0.5)


def everything(rank: int) -> None:
    """The counters that appear with their first event, on one rank of two; the other one is idle."""
    metrics = scheduler(rank, 2)
    metrics.stage("run_batch", 0.25)
    metrics.tick(100.0)
    metrics.tick(100.9)  # not due: nothing is written
    metrics.idle(0.5)
    if rank == 0:
        metrics.prefill_pass(graph=False)
        metrics.decode_pass(graph=False)
        metrics.realtime("prefill_compute", 700, 1)
        metrics.realtime("prefill_cache", 300, 1)
        metrics.realtime("decode", 0, 1)
        metrics.retracted(requests=2, input_tokens=4096, output_tokens=100)
        metrics.queue_time(0.02)
        metrics.step(all_tokens=[3, 0], all_pairs=[900, 0], sync_wait=0.0007)
    else:
        metrics.step(all_tokens=[3, 0], all_pairs=[900, 0], sync_wait=0.0001)


SCENARIOS: dict[str, tuple[int, Callable[[int], None]]] = {
    "as_captured": (8, as_captured),
    "fresh": (2, fresh),
    "alone": (1, alone),
    "one_long_context": (8, one_long_context),
    "everything": (2, everything),
}


FRONTENDS: dict[str, Callable[[], None]] = {"as_captured": as_captured_frontend, "everything": everything_frontend}


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


async def scrape(directory: Path) -> dict[str, object]:
    app = create_app(
        loads_path=directory / "loads",
        ranks=8,
        accelerator="NVIDIA H20 (virtual)",
        server_info={"served_model_name": MODEL},
        healthy=lambda: True,
        api_key="key",
    )
    replies: dict[str, object] = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine", headers={"accept": "*/*"}) as client:

        async def get(name: str, path: str, **headers: str) -> None:
            reply = await client.get(path, headers={"accept-encoding": "identity", **headers})
            replies[name] = {"status": reply.status_code, "content_type": reply.headers.get("content-type"), "text": reply.text}

        await get("plain", "/metrics")
        await get("openmetrics", "/metrics", accept="application/openmetrics-text;version=1.0.0")
        await get("utf8", "/metrics", accept="application/openmetrics-text;version=1.0.0;escaping=allow-utf-8")
        await get("slash", "/metrics/")
        await get("refused", "/v1/loads")
        await get("loads", "/v1/loads", authorization="Bearer key", **{"x-smg-routing-key": "session"})
        await get("nowhere", "/nowhere", authorization="Bearer key")
        await get("after", "/metrics")
    return replies


def main() -> None:
    directory = Path(sys.argv[2])
    ranks, work = SCENARIOS[sys.argv[1]]
    children = [fork(lambda rank=rank: work(rank)) for rank in range(ranks)]  # type: ignore[misc]
    if sys.argv[1] in FRONTENDS:
        children.append(fork(FRONTENDS[sys.argv[1]]))
    for pid in children:
        if os.waitpid(pid, 0)[1]:
            raise SystemExit(f"process {pid} failed")
    replies = asyncio.run(scrape(directory))
    replies["cost"] = [float(path.read_text()) for path in sorted(directory.glob("cost_*.txt"))]
    json.dump(replies, sys.stdout)


if __name__ == "__main__":
    main()
