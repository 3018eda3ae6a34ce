"""How long an hour of many ranks takes to be read back out of Prometheus, and what it asks for.

    python -m benchmarks.prometheus_read --prometheus PATH --promtool PATH [--ranks 512] [--every 15] [--steps]

Goal: 512 ranks at 15 s in at most 3 s and 500 MB until everything lies in memory as series; the windows are timed apart. `--steps` asks by
query_range too, for the comparison of decision 0019.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.servers import prometheus
from collector.engines import sglang_metrics
from collector.prometheus.client import Client, Server
from collector.prometheus.read import Past, fetch, windows

START = 1_767_225_600
HOUR_S = 3600
NODE_RANKS = 8


def lines(ranks: int, every: int, seed: int = 1) -> Iterator[str]:
    """An hour of the counters that SGLang shows per rank with its metrics and DP attention switched on, of engines of eight ranks."""
    rng = np.random.default_rng(seed)
    at = np.arange(START, START + HOUR_S + 1, every)
    stages = ("recv_requests", "process_input_requests", "get_next_batch_to_run", "run_batch", "process_batch_result", "other", "idle")
    shown = {
        "scheduler_process_cpu_seconds_total": [""],
        "scheduler_stage_seconds_total": [f'category="{stage}",forward_overlap="none",' for stage in stages],
        "dp_attention_tokens_total": ['kind="scheduled",', 'kind="imbalance",'],
        "dp_attention_pairs_total": ['kind="scheduled",', 'kind="imbalance",'],
        "dp_attention_steps_total": ['rank_state="active",', 'rank_state="idle",'],
        "dp_attention_sync_wait_seconds_sum": [""],
        "dp_attention_sync_wait_seconds_count": [""],
        "cuda_graph_passes_total": [f'mode="{mode}",' for mode in ("decode_cuda_graph", "decode_none", "prefill_none")],
        "realtime_tokens_total": [f'mode="{mode}",' for mode in ("prefill_compute", "prefill_cache", "decode")],
        "forward_execution_seconds_total": [f'category="{category}",' for category in ("decode", "extend")],
        "num_retracted_requests_total": [""],
    }
    for name, parts in sorted(shown.items()):
        family = sglang_metrics.PREFIXES[0] + name
        yield f"# TYPE {family} unknown\n"
        for rank in range(ranks):
            node, own = divmod(rank, NODE_RANKS)
            place = (
                f'instance="10.0.{node // 250}.{node % 250}:30000",job="sglang",dp_rank="{own}",tp_rank="{own}",pp_rank="0",model_name="m"'
            )
            for part in parts:
                values = np.cumsum(rng.random(len(at)) * every).tolist()
                series = f"{family}{{{part}{place}}}"
                for moment, value in zip(at.tolist(), values, strict=True):
                    yield f"{series} {value!r} {moment}\n"
    yield "# EOF\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", default=shutil.which("prometheus") or "prometheus")
    parser.add_argument("--promtool", default=shutil.which("promtool") or "promtool")
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--every", type=int, default=15)
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args()
    start, end = START * 1000, (START + HOUR_S) * 1000
    with prometheus(options.prometheus, options.promtool, lines(options.ranks, options.every)) as url:
        before = _resident()
        began, cpu = time.perf_counter(), time.process_time()

        async def ask() -> Past:
            async with Client(Server(url)) as client:
                return await fetch(client, start, end)

        past = asyncio.run(ask())
        took, used = time.perf_counter() - began, time.process_time() - cpu
        print(f"{options.ranks} ranks, one hour at {options.every} s: {past.queries} queries, {past.samples:,} samples")
        print(f"read: {took:.2f} s ({used:.2f} s of them CPU here); memory {before:.0f} -> {_resident():.0f} MB at most", flush=True)
        began, cpu = time.perf_counter(), time.process_time()
        found = windows(past, start, end)
        took, used = time.perf_counter() - began, time.process_time() - cpu
        print(f"windows of {len(found)} engines: {took:.2f} s ({used:.2f} s of them CPU); memory {_resident():.0f} MB at most", flush=True)
        assert sum(len(window.ranks) for window in found) == options.ranks
        assert min(window.edges[-1] - window.edges[0] for window in found) == HOUR_S
        if options.steps:
            _by_steps(url, options.every)


def _by_steps(url: str, every: int) -> None:
    """The same hour by query_range, summed by rank on the server: what raw samples are compared with."""
    import httpx

    from collector.prometheus.answer import read
    from collector.prometheus.queries import QUERIES, SGLANG

    count, began = 0, time.perf_counter()
    with httpx.Client(timeout=60.0) as client:
        for query in QUERIES:
            if query.kind == SGLANG:
                labels = "instance, dp_rank, category, kind, mode, rank_state"
                form = {"query": f"sum by ({labels}) (rate({query.selector('')}[{4 * every}s]))", "step": f"{every}s"}
                reply = client.post(f"{url}/api/v1/query_range", data={**form, "start": str(START), "end": str(START + HOUR_S)})
                count += sum(len(series.times) for series in read(url, reply.raise_for_status().content).series)
    print(f"query_range of rates at the same step: {time.perf_counter() - began:.2f} s, {count:,} points")


def _resident() -> float:
    """Most memory that this process ever held, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
