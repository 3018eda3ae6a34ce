"""What it takes to read an hour of many ranks back out of a real Prometheus.

    python benchmarks/prometheus_read.py [--ranks 512] [--every 15] [--binaries FOLDER] [--json]

Nodes of eight ranks, eight nodes an engine, with the series of SGLang 0.5.23 that a diagnosis reads, /v1/loads as Prometheus text among
them. The hour is written as blocks by promtool, so nothing is waited for. Prometheus and promtool are taken from PATH, or from the folder
of --binaries. Wall time, CPU and peak memory are of a process that only reads, and the CPU of Prometheus beside it; the least of three
rounds counts, as other work only adds. --json reads as from a server without remote read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.prometheus.api import Api, Server
from collector.prometheus.queries import QUERIES
from collector.prometheus.read import Scope, read

START = 1_767_225_600.0
HOUR = 3600.0
NODE = 8  # ranks
NODES = 8  # of one engine
STAGES = ("recv_requests", "process_input_requests", "get_next_batch_to_run", "run_batch", "process_queue", "sanity_check_cache", "other")
ROUNDS = 3


def series(rank: int) -> list[tuple[str, str, float]]:
    """(name, labels of its own, growth a second; 0 for a gauge) of one rank, as a page of SGLang 0.5.23 has them."""
    both = [("full", 1.0), ("none", 0.5), ("partial", 0.25)]
    found = [
        ("sglang:dp_attention_tokens_total", 'kind="scheduled"', 400.0),
        ("sglang:dp_attention_pairs_total", 'kind="scheduled"', 1.5e6),
        ("sglang:dp_attention_pairs_total", 'kind="imbalance"', 2e5),
        ("sglang:dp_attention_steps_total", 'rank_state="active"', 30.0),
        ("sglang:dp_attention_steps_total", 'rank_state="idle"', 0.1),
        ("sglang:dp_attention_sync_wait_seconds_sum", "", 0.11),
        ("sglang:scheduler_process_cpu_seconds_total", "", 0.8),
        ("sglang:forward_execution_seconds_total", 'category="decode"', 0.6),
        ("sglang:forward_execution_seconds_total", 'category="extend"', 0.2),
        ("sglang:num_retracted_requests_total", "", 0.01),
        *[("sglang:cuda_graph_passes_total", f'mode="{m}"', 10.0) for m in ("decode_cuda_graph", "decode_none", "prefill_none")],
        *[("sglang:realtime_tokens_total", f'mode="{m}"', 100.0) for m in ("prefill_compute", "prefill_cache", "decode")],
        *[
            ("sglang:scheduler_stage_seconds_total", f'category="{stage}",forward_overlap="{overlap}"', 0.013 * growth)
            for stage in STAGES
            for overlap, growth in both[: 2 if stage != "recv_requests" else 3]
        ],
    ]
    process = f'dp_rank="{rank}",tp_rank="{rank}",pp_rank="0",moe_ep_rank="{rank}",engine_type="unified",model_name="glm-5"'
    return [(name, f"{process},{own}" if own else process, growth) for name, own, growth in found]


def loads(rank: int) -> list[tuple[str, str, float]]:
    """The same of /v1/loads."""
    grow = {"total_prefill_uncached_tokens": 900.0, "total_prefill_busy_us": 1.2e5, "timestamp": 1.0}
    names = [name for query in QUERIES if query.name == "loads" for name in query.names if "spec_" not in name]
    return [(name, f'dp_rank="{rank}"', grow.get(name.removeprefix("sglang_"), 0.0)) for name in names]


def samples(ranks: int, every: float) -> Iterator[str]:
    """OpenMetrics lines of an hour, metric by metric."""
    moments = [START + every * i for i in range(int(HOUR / every) + 1)]
    for rank in range(ranks):
        engine, place = divmod(rank, NODE * NODES)
        node, first = f"e{engine}-n{place // NODE}:30000", f"e{engine}-n0:30000"
        where = f'job="sglang",cluster="e{engine}"'
        told = [*((s, node) for s in series(place)), *((s, first) for s in loads(place))]
        for (name, own, growth), instance in told:
            begin = 1234.567 + rank
            for i, at in enumerate(moments):
                grown = growth * (at - START + every * ((i * 7919 + rank) % 13) / 14)  # uneven, never falling
                value = at if name == "sglang_timestamp" else begin + (grown if growth else (i * 31 + rank) % 17)
                yield f'{name}{{instance="{instance}",{where},{own}}} {value!r} {at:.3f}\n'


@contextmanager
def prometheus(folder: Path, binaries: Path | None, ranks: int, every: float) -> Iterator[tuple[str, int]]:
    """A server with the hour in it: its URL and process id."""
    text, data, config = folder / "hour.om", folder / "data", folder / "prometheus.yml"
    with text.open("w") as out:
        out.writelines(samples(ranks, every))
        out.write("# EOF\n")
    config.write_text("global: {}\n")
    command = [_binary("promtool", binaries), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    text.unlink()
    log = folder / "log"
    options = [f"--config.file={config}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y"]
    with log.open("wb") as out_log:
        server = subprocess.Popen(
            [_binary("prometheus", binaries), *options, "--web.listen-address=127.0.0.1:0"], stdout=out_log, stderr=out_log
        )
    try:
        for _ in range(600):
            if found := re.search(r'Listening on" address=(127\.0\.0\.1:[1-9]\d*)', log.read_text(errors="replace")):
                break
            time.sleep(0.1)
        else:
            raise SystemExit(log.read_text(errors="replace")[-2000:])
        yield f"http://{found[1]}", server.pid
    finally:
        server.terminate()
        server.wait(30)


def _binary(name: str, folder: Path | None) -> str:
    found = str(folder / name) if folder else shutil.which(name)
    if not found:
        raise SystemExit(f"no {name} on PATH; name its folder with --binaries")
    return found


async def once(url: str, plain: bool) -> None:
    """Read the hour, and say what it took."""
    async with Api(Server(url), streams=False if plain else None) as api:
        began, cpu = time.perf_counter(), time.process_time()
        answer = await read(api, Scope(START, START + HOUR))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ranks = sum(len(window.ranks) for window in answer.windows)
    cells = sum(len(window.edges) - 1 for window in answer.windows)
    print(f"{took:.2f} {cpu:.2f} {peak:.0f} {api.queries} {api.samples} {len(answer.windows)} {ranks} {cells}")


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ranks", type=int, default=512)
    arguments.add_argument("--every", type=float, default=15.0, help="scrape interval, seconds")
    arguments.add_argument("--binaries", type=Path)
    arguments.add_argument("--json", action="store_true", help="as from a server without remote read")
    arguments.add_argument("--url", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.url:
        asyncio.run(once(given.url, given.json))
        return
    rounds: list[list[str]] = []
    with tempfile.TemporaryDirectory() as name, prometheus(Path(name), given.binaries, given.ranks, given.every) as (url, pid):
        command = [sys.executable, __file__, "--url", url, *(["--json"] if given.json else [])]
        for _ in range(ROUNDS):
            before = cpu_of(pid)
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            rounds.append([*said, f"{cpu_of(pid) - before:.2f}"])
    took, cpu, peak, queries, count, engines, ranks, cells, theirs = min(rounds, key=lambda r: float(r[0]))
    print(
        f"{ranks} ranks of {engines} engines, an hour at {given.every:g} s ({cells} intervals in all): {queries} queries, {count} samples"
    )
    print(f"wall {took} s, CPU of the reader {cpu} s and of Prometheus {theirs} s, peak memory {peak} MB")
    print(f"rounds: {', '.join(r[0] for r in rounds)} s")


if __name__ == "__main__":
    main()
