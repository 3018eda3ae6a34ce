"""Reads a running cluster as a scraper does: its pages, and nothing from inside."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from workload.cluster import Cluster

_SAMPLE = re.compile(r"^sglang:(\w+)\{([^}]*)\} (\S+)$")
_KINDS = ("category", "kind", "rank_state", "forward_mode", "mode")


@dataclass
class Window:
    """What happened between two scrapes. Lists hold one value per rank; times are seconds per step of the group."""

    steps: float
    step_time: float  # launch to launch of contiguous decode steps, median of the ranks
    broadcast: list[float]  # stage recv_requests, which holds the control broadcast
    sync: list[float]  # the metadata exchange
    work: list[float]  # the scheduling pass without the exchange
    cpu: list[float]
    pairs: list[float]  # per step
    tokens: list[float]  # per step
    imbalance: list[float]  # pairs per step that the rank was short of the longest
    balancedness: float
    prefill_steps: float  # share of steps that rank 0 ran without a decode graph
    loads: list[dict[str, Any]]
    seconds: float

    @property
    def waits(self) -> list[float]:
        return [b + s for b, s in zip(self.broadcast, self.sync, strict=True)]


class Probe:
    def __init__(self, cluster: Cluster, client: httpx.Client) -> None:
        self.cluster = cluster
        self._client = client

    def loads(self) -> list[dict[str, Any]]:
        page: dict[str, Any] = self._client.get("/v1/loads").json()
        return list(page["loads"])

    def get(self, path: str) -> httpx.Response:
        return self._client.get(path)

    def page(self) -> dict[tuple[str, str, str], float]:
        """Samples by (family, rank, kind); histogram buckets left out."""
        samples = {}
        for line in self._client.get("/metrics").text.splitlines():
            if (match := _SAMPLE.match(line)) is not None:
                labels = dict(pair.split("=", 1) for pair in match[2].replace('"', "").split(","))
                if "le" not in labels:
                    kind = next((labels[k] for k in _KINDS if k in labels), "")
                    samples[match[1], labels.get("dp_rank", ""), kind] = float(match[3])
        return samples

    def window(self, seconds: float, settle: float = 0.0) -> Window:
        time.sleep(settle)
        before, start, loads = self.page(), time.monotonic(), self.loads()
        time.sleep(seconds)
        after, end, loads_after = self.page(), time.monotonic(), self.loads()
        ranks = [str(r) for r in range(self.cluster.config.ranks)]

        def grown(family: str, kind: str = "") -> list[float]:
            return [after.get((family, r, kind), 0.0) - before.get((family, r, kind), 0.0) for r in ranks]

        steps = grown("dp_attention_steps_total", "active")[0] + grown("dp_attention_steps_total", "idle")[0]

        def per_step(family: str, kind: str = "") -> list[float]:
            return [x / max(steps, 1) for x in grown(family, kind)]

        sync = per_step("dp_attention_sync_wait_seconds_sum")
        schedule = per_step("scheduler_stage_seconds_total", "get_next_batch_to_run")
        levels = [(grown("eplb_balancedness_sum", m)[0], grown("eplb_balancedness_count", m)[0]) for m in ("decode", "extend")]
        eager = grown("cuda_graph_passes_total", "decode_none")[0] + grown("cuda_graph_passes_total", "prefill_none")[0]
        return Window(
            steps=steps,
            step_time=statistics.median(_step_time(a, b) for a, b in zip(loads, loads_after, strict=True)),
            broadcast=per_step("scheduler_stage_seconds_total", "recv_requests"),
            sync=sync,
            work=[a - b for a, b in zip(schedule, sync, strict=True)],
            cpu=per_step("scheduler_process_cpu_seconds_total"),
            pairs=per_step("dp_attention_pairs_total", "scheduled"),
            tokens=per_step("dp_attention_tokens_total", "scheduled"),
            imbalance=per_step("dp_attention_pairs_total", "imbalance"),
            balancedness=sum(total for total, _ in levels) / max(1.0, sum(n for _, n in levels)),
            prefill_steps=eager / max(steps, 1),
            loads=loads_after,
            seconds=end - start,
        )


def _step_time(before: dict[str, Any], after: dict[str, Any]) -> float:
    n, t = (after["decode_moments"][i] - (before["decode_moments"] or [0.0] * 6)[i] for i in (0, 2))
    return float(t / n / 1e6) if n else 0.0


@pytest.fixture(scope="session")
def probe() -> Iterator[Callable[[Cluster], Probe]]:
    """Makes a reader of a running cluster."""
    with contextlib.ExitStack() as clients:

        def make(cluster: Cluster) -> Probe:
            return Probe(cluster, clients.enter_context(httpx.Client(base_url=cluster.url, timeout=30)))

        yield make


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="session")
def gone() -> Callable[[list[int]], bool]:
    """Tells whether all of these processes have ended, within a few seconds. A zombie that nobody has buried counts as ended."""

    def wait(pids: list[int]) -> bool:
        deadline = time.monotonic() + 5
        while any(_alive(pid) for pid in pids):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return wait
