"""vLLM clusters of real processes: which fault shows where, and what a page looks like while nothing moves."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import httpx
import pytest

from workload.cluster import Cluster
from workload.config import ClusterConfig, Lengths, VllmFlags
from workload.control import Control
from workload.schedule import check, parse
from workload.wire import Pin

_SAMPLE = re.compile(r"^vllm:(\w+)\{(.*)\} (\S+)$")
_ITL = "inter_token_latency_seconds"

Page = dict[str, list[float]]


def read(cluster: Cluster) -> Page:
    """Values by family, one per engine; families with a label of their own and buckets left out."""
    page: Page = {}
    for line in httpx.get(cluster.url + "/metrics", timeout=10).text.splitlines():
        match = _SAMPLE.match(line)
        labels = dict(pair.split("=", 1) for pair in match[2].replace('"', "").split(",")) if match else {}
        if match and set(labels) == {"engine", "model_name"}:
            values = page.setdefault(match[1], [0.0] * cluster.config.ranks)
            values[int(labels["engine"])] = float(match[3])
    return page


def grown(before: Page, after: Page, family: str) -> list[float]:
    return [b - a for a, b in zip(before[family], after[family], strict=True)]


def window(cluster: Cluster, seconds: float) -> Callable[[str], list[float]]:
    before = read(cluster)
    time.sleep(seconds)
    after = read(cluster)
    return lambda family: grown(before, after, family)


def gaps(of: Callable[[str], list[float]]) -> list[float]:
    return [s / max(n, 1) for s, n in zip(of(f"{_ITL}_sum"), of(f"{_ITL}_count"), strict=True)]


def exactly(tokens: int) -> Lengths:
    return Lengths(tokens, 0, tokens, tokens)


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_in_lockstep_a_slow_rank_is_everybodys_and_a_hung_one_freezes_all():
    """Rank 1 late by twice the fault's own delay: gaps grow on all engines alike (a real run: 90.9 and 91.6 ms). Stopped: every
    series of every engine stands still, the running gauge at its last value, and /health says 200."""
    with Cluster(ClusterConfig(ranks=2, vllm=VllmFlags())) as cluster:
        time.sleep(1.5)
        healthy = gaps(window(cluster, 2.0))
        cluster.inject("slow_rank", rank=1, severity=2.0)
        time.sleep(0.5)
        slow = gaps(window(cluster, 2.0))
        assert min(slow) > 1.3 * max(healthy)
        assert max(slow) / min(slow) < 1.1
        cluster.clear()
        cluster.inject("stuck_rank", rank=1)
        time.sleep(0.5)
        running = read(cluster)["num_requests_running"]
        stuck = window(cluster, 1.0)
        assert stuck("generation_tokens_total") == [0, 0]
        assert stuck("num_requests_running") == [0, 0]
        assert min(running) > 0
        assert httpx.get(cluster.url + "/health").status_code == 200
        cluster.clear()
        time.sleep(0.5)
        assert min(window(cluster, 1.0)("generation_tokens_total")) > 0


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_dense_engines_are_slow_and_hang_alone():
    """The slow engine's gaps are more than three times the other's, which stay as they were (a real run: 84.0 and 13.1 ms); a hung
    engine stands still and the other goes on. With one API server the count of iterations is that of steps."""
    with Cluster(ClusterConfig(ranks=2, vllm=VllmFlags(moe=False))) as cluster:
        time.sleep(1.0)
        of = window(cluster, 2.0)
        healthy = gaps(of)
        steps = [n * gap / 2.0 for n, gap in zip(of("iteration_tokens_total_count"), healthy, strict=True)]
        assert steps == pytest.approx([1, 1], abs=0.25)
        cluster.inject("slow_rank", rank=1, severity=2.0)
        time.sleep(0.5)
        slow = gaps(window(cluster, 2.0))
        assert slow[1] > 3 * slow[0]
        assert slow[0] < 1.5 * healthy[0]
        cluster.clear()
        cluster.inject("stuck_rank", rank=1)
        time.sleep(0.5)
        assert [n > 0 for n in window(cluster, 1.0)("generation_tokens_total")] == [True, False]
        assert httpx.get(cluster.url + "/health").status_code == 200


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_an_idle_rank_of_a_busy_group_is_flat_and_waves_begin_again():
    """Requests on engine 0 alone: it steps, engine 1 runs dummy batches of which no page tells. When all is done the group pauses, and
    a request on the other engine wakes it. Two API servers each count a step that brought both something: twice the steps."""
    with Cluster(ClusterConfig(ranks=2, traffic=None, vllm=VllmFlags(api_servers=2))) as cluster:
        control = Control(cluster.config, cluster._running())
        end = control.pin(Pin("busy", 0, 4, exactly(500), exactly(10), exactly(5000)))
        time.sleep(0.5)
        of = window(cluster, 1.0)
        assert of("generation_tokens_total")[0] > 0
        everything = [family for family in read(cluster) if family != "cache_config_info"]
        assert {family for family in everything if of(family)[1]} == set()
        assert read(cluster)["num_requests_running"] == [4, 0]
        # four rows a step and two counts of it: half as many counts as tokens
        assert of("iteration_tokens_total_count")[0] * 2 == pytest.approx(of("generation_tokens_total")[0], rel=0.1)
        assert "_created" not in (text := httpx.get(cluster.url + "/metrics").text)
        assert "process_" not in text
        end()
        time.sleep(1.0)
        control.pin(Pin("after", 1, 1, exactly(500), exactly(10), exactly(20), renew=False))
        time.sleep(2.0)
        assert read(cluster)["e2e_request_latency_seconds_count"] == [0, 1]


def test_a_cluster_refuses_what_it_cannot_play():
    """Faults of experts and of a common step on dense engines, stale snapshots on any vLLM, and dense engines on cards that must meet."""
    dense, moe = ClusterConfig(vllm=VllmFlags(moe=False)), ClusterConfig(vllm=VllmFlags())
    check([parse("expert_hotspot:rank=1")], moe)
    with pytest.raises(ValueError, match="a dense model has no experts"):
        check([parse("expert_hotspot:rank=1")], dense)
    with pytest.raises(ValueError, match="no load snapshots"):
        check([parse("stale_ledger:rank=1")], moe)
    with pytest.raises(ValueError, match="use device 'virtual'"):
        ClusterConfig(device="cpu", vllm=VllmFlags(moe=False))
    with pytest.raises(ValueError, match="0 API servers"):
        VllmFlags(api_servers=0)
