"""What orders to one rank's scheduler do to a running cluster, read from its pages. Margins are wide: the machine may be busy."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from workload.cluster import Cluster
from workload.config import ClusterConfig, EngineFlags, Limits
from workload.control import Control
from workload.scheduling.settings import Speculation, Split

pytestmark = [pytest.mark.cluster, pytest.mark.beside(row=3)]

RANKS = 3


def control(cluster: Cluster) -> Control:
    assert cluster._nursery is not None
    return Control(cluster.config, cluster._nursery)


class Grown:
    """What the counters of each rank gained since it was made."""

    def __init__(self, reader) -> None:
        self._reader = reader
        self._before = reader.page()

    def __call__(self, family: str, kind: str = "") -> list[float]:
        after = self._reader.page()
        return [after.get((family, str(r), kind), 0.0) - self._before.get((family, str(r), kind), 0.0) for r in range(RANKS)]


@pytest.fixture(scope="module")
def speculating() -> Iterator[Cluster]:
    # 100,000 tokens: the crowd of a rank needs about half
    with Cluster(ClusterConfig(ranks=RANKS, limits=Limits(kv_tokens=100_000), engine=EngineFlags(speculation=Speculation()))) as running:
        yield running


@pytest.fixture(scope="module")
def reader(speculating, probe):
    return probe(speculating)


def test_acceptance_falls_on_one_rank(speculating, reader):
    """It makes fewer tokens per verified row than its peers; steps, and what they cost, stay the same for all."""
    control(speculating).accept(1, 0.3)
    time.sleep(0.5)
    grown = Grown(reader)
    time.sleep(3)
    made, rows = grown("realtime_tokens_total", "decode"), grown("dp_attention_tokens_total", "scheduled")
    prefilled = grown("realtime_tokens_total", "prefill_compute")
    control(speculating).accept(1, 1.0)
    per_row = [m / (r - p) for m, r, p in zip(made, rows, prefilled, strict=True)]
    # 1 + .7 + .49 + .343 = 2.53 against 1 + .21 + .044 + .009 = 1.26
    assert per_row[1] < 1.6
    assert min(per_row[0], per_row[2]) > 2.0
    assert all(load["speculative"]["accept_length"] > 1 for load in reader.loads())


def test_one_rank_votes_against_graphs(speculating, reader):
    """No rank replays a decode graph any more."""
    control(speculating).vote_graph(2, allowed=False)
    time.sleep(0.5)
    grown = Grown(reader)
    time.sleep(1)
    replayed, eager = grown("cuda_graph_passes_total", "decode_cuda_graph"), grown("cuda_graph_passes_total", "decode_none")
    control(speculating).vote_graph(2, allowed=True)
    assert replayed == [0.0] * RANKS
    assert min(eager) > 5


def test_a_rank_loses_its_kv_room(speculating, reader):
    """It alone retracts, its pool is full and its queue grows; its peers have room."""
    grown = Grown(reader)
    control(speculating).kv_reserve(0, 0.8)
    time.sleep(2)
    loads, retracted = reader.loads(), grown("num_retracted_requests_total")
    control(speculating).kv_reserve(0, 0.0)
    assert retracted[0] > 0
    assert retracted[1:] == [0.0, 0.0]
    assert loads[0]["token_usage"] > 0.85
    assert loads[0]["num_waiting_reqs"] > 0
    assert [load["num_waiting_reqs"] for load in loads[1:]] == [0, 0]


def test_a_publisher_sticks(speculating, reader):
    """The rank's snapshot stands still while the rank steps on with the others."""
    control(speculating).stick_publisher(1, stuck=True)
    time.sleep(0.5)
    grown, before = Grown(reader), reader.loads()
    time.sleep(2)
    after, steps = reader.loads(), grown("dp_attention_steps_total", "active")
    control(speculating).stick_publisher(1, stuck=False)
    ages = [now["timestamp"] - then["timestamp"] for now, then in zip(after, before, strict=True)]
    assert ages[1] == 0
    assert min(ages[0], ages[2]) > 0.5
    assert min(steps) > 5


def test_what_the_cluster_cannot_do_is_refused(speculating):
    """With what it would take."""
    with pytest.raises(ValueError, match="is not split"):
        control(speculating).kv_link(0, 0.1)
    with pytest.raises(ValueError, match="0 to 1"):
        control(speculating).kv_reserve(0, 80)


def test_a_decode_server_with_one_slow_kv_link(probe):
    """Requests pile up in that rank's transfer queue, and it decodes fewer than its peers; no rank ever prefills."""
    with Cluster(ClusterConfig(ranks=RANKS, engine=EngineFlags(split=Split("decode")))) as cluster:
        reader = probe(cluster)
        control(cluster).kv_link(1, 0.001)  # 50 MB/s: 5000 tokens need 4.5 s
        time.sleep(4)
        loads, info = reader.loads(), reader.get("/server_info").json()
        page = reader.page()
        with pytest.raises(ValueError, match="does not speculate"):
            control(cluster).accept(0, 0.5)
    queues = [load["disaggregation"]["decode_transfer_queue_reqs"] for load in loads]
    assert queues[1] > 3
    assert max(queues[0], queues[2]) <= 3
    assert all(load["total_prefill_uncached_tokens"] == 0 for load in loads)
    assert min(loads[r]["num_running_reqs"] for r in (0, 2)) > 0
    assert page["kv_transfer_bootstrap_ms_count", "1", ""] > 0
    assert info["disaggregation_mode"] == "decode"


def test_a_prefill_server_with_one_slow_kv_link(probe):
    """Requests that are done wait in flight on that rank; transfers are slower there; nothing decodes."""
    with Cluster(ClusterConfig(ranks=RANKS, engine=EngineFlags(split=Split("prefill")))) as cluster:
        reader = probe(cluster)
        control(cluster).kv_link(1, 0.01)  # 0.5 GB/s: 5000 tokens need .45 s
        time.sleep(4)
        loads, page = reader.loads(), reader.page()
    speed = [page["kv_transfer_speed_gb_s_sum", str(r), ""] / page["kv_transfer_speed_gb_s_count", str(r), ""] for r in range(RANKS)]
    assert speed[1] < 0.5 * min(speed[0], speed[2])
    assert loads[1]["disaggregation"]["prefill_inflight_queue_reqs"] > 0
    assert [load["num_running_reqs"] for load in loads] == [0] * RANKS
    assert all(load["utilization"] == -1 for load in loads)
    assert page["generation_tokens_total", "", ""] == page["num_requests_total", "", ""]
