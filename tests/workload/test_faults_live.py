"""Faults on a real cluster: those of draft models and of links, those that only a client sees, and the ones that work through a thread."""

from __future__ import annotations

import statistics
import time

import pytest

from workload.cluster import Cluster
from workload.config import ClusterConfig, EngineFlags, Lengths, OpenLoop, Traffic
from workload.labels import read
from workload.scheduling.settings import Speculation, Split

pytestmark = pytest.mark.cluster

RANKS = 4


def others(values, rank):
    return [v for r, v in enumerate(values) if r != rank]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(ClusterConfig(ranks=RANKS, labels=tmp_path_factory.mktemp("truth") / "labels.jsonl")) as running:
        time.sleep(3)
        yield running


@pytest.fixture(scope="module")
def reader(cluster, probe):
    return probe(cluster)


def test_outside_the_ranks_delays_the_client_and_no_rank(probe):
    """The first token comes a second later; steps and waits stay as they were. Answers of four tokens, as latency is told at the end."""
    four = Lengths(4, 0, 4, 4)
    traffic = Traffic(OpenLoop(rate=8.0), prompt=Lengths(2000, 0, 2000, 2000), fresh=four, output=four)
    with Cluster(ClusterConfig(ranks=2, traffic=traffic)) as cluster:
        reader = probe(cluster)

        def first_token():
            before = reader.page()
            time.sleep(2)
            after = reader.page()
            name = "time_to_first_token_seconds_"
            total, answered = (after[name + part, "", ""] - before[name + part, "", ""] for part in ("sum", "count"))
            return total / answered

        healthy = reader.window(1.5, settle=0.5)
        usual = first_token()
        cluster.inject("outside_the_ranks")
        now = reader.window(1.5, settle=1.5)
        late = first_token()
    assert usual + 0.8 < late < usual + 1.5
    assert now.seconds / now.steps == pytest.approx(healthy.seconds / healthy.steps, rel=0.4)
    assert max(now.waits) < 0.3 * now.seconds / now.steps


def test_idle_lockstep_and_its_end(cluster, reader):
    """Everybody else's batch empties at once; when it ends the crowd comes back within a few seconds."""
    cluster.inject("idle_lockstep", rank=2)
    time.sleep(1.5)
    now = reader.window(1.0)
    assert now.pairs[2] > 1_000
    assert others(now.pairs, 2) == [0.0] * (RANKS - 1)
    assert now.steps > 10
    cluster.clear()
    time.sleep(4)
    assert min(load["num_running_reqs"] for load in reader.loads()) > 0


def test_slow_node_straggles_and_is_well_again(cluster, reader):
    """Both ranks of the half wait less than both of the other; afterwards nobody burns CPU; the label names the whole half."""
    cluster.inject("slow_node", rank=3)
    now = reader.window(2.0, settle=1.2)
    cluster.clear()
    after = reader.window(1.0, settle=1.2)
    assert max(now.waits[2:]) < min(now.waits[:2])
    assert min(now.cpu[2:]) > 3 * max(now.cpu[:2])
    assert max(after.cpu) < 0.005
    assert read(cluster.config.labels)[-1].ranks == (2, 3)


def test_a_drained_rank_gets_nothing_new_but_pinned_requests(cluster, reader):
    """The ordinary crowd goes past it; what a fault pins there still comes."""
    cluster.inject("drained_rank", rank=1)
    cluster.inject("idle_lockstep", rank=1)  # turns the crowd away and keeps two requests on the drained rank
    time.sleep(1.5)
    assert reader.loads()[1]["num_running_reqs"] == 2
    cluster.clear("idle_lockstep")
    time.sleep(5)
    loads = [load["num_running_reqs"] for load in reader.loads()]
    cluster.clear()
    assert min(others(loads, 1)) > 0
    assert loads[1] <= 2


def test_a_fault_that_acts_can_rise_if_its_file_says_so(cluster, reader):
    """whole_group_slow at a tenth of itself is hardly there; raised, it is; what cannot rise says so, and what does not act too."""
    cluster.inject("whole_group_slow", severity=0.1)
    with pytest.raises(ValueError, match="does not act"):
        cluster.worsen("slow_rank", rank=0)
    weak = reader.window(1.5, settle=0.8)
    cluster.worsen("whole_group_slow", severity=2.0)
    strong = reader.window(1.5, settle=0.8)
    cluster.inject("stale_ledger", rank=0)
    with pytest.raises(ValueError, match="cannot rise"):
        cluster.worsen("stale_ledger", rank=0)
    cluster.clear()
    assert strong.step_time > 1.3 * weak.step_time
    assert [label.severity for label in read(cluster.config.labels) if label.fault == "whole_group_slow"] == [2.0]


def test_pd_queue_skew_piles_up_between_prefill_and_decode(probe):
    """On a decode server the slow link's rank has requests in transfer that its peers do not have."""
    with Cluster(ClusterConfig(ranks=RANKS, engine=EngineFlags(split=Split("decode")))) as cluster:
        reader = probe(cluster)
        time.sleep(2)
        cluster.inject("pd_queue_skew", rank=1)
        time.sleep(6)
        queued = [load["disaggregation"]["decode_transfer_queue_reqs"] for load in reader.loads()]
        assert queued[1] >= 2
        assert queued[1] > max(others(queued, 1)) + 1


def test_speculation_skew_yields_fewer_tokens_a_row(probe):
    """The accepted length falls towards 1.07 on that rank, and stays about 2.53 on its peers."""
    with Cluster(ClusterConfig(ranks=RANKS, engine=EngineFlags(speculation=Speculation()))) as cluster:
        reader = probe(cluster)
        time.sleep(1)
        cluster.inject("speculation_skew", rank=2)
        time.sleep(3)
        before = reader.page()
        time.sleep(3)
        after = reader.page()

        def tokens_a_row(rank):
            def grown(*key):
                return after[key] - before[key]

            # the token counter counts a row once, whatever was verified; a prefill's tokens are counted there as well
            rows = grown("dp_attention_tokens_total", str(rank), "scheduled") - grown("realtime_tokens_total", str(rank), "prefill_compute")
            return grown("realtime_tokens_total", str(rank), "decode") / rows

        assert tokens_a_row(2) == pytest.approx(1.075, abs=0.12)
        assert statistics.mean(others([tokens_a_row(r) for r in range(RANKS)], 2)) == pytest.approx(2.533, abs=0.3)
