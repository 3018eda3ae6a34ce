"""What each fault physically does to a running cluster, read from its pages. No diagnosis here: only times, loads and waits.

Margins are wide on purpose: the machine that runs this may be busy with other things.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest

from workload import faults, labels
from workload.cluster import Cluster
from workload.config import ClusterConfig

pytestmark = pytest.mark.cluster

RANKS = 8
SETTLE = 1.2  # seconds until a fault shows in everything: stage counters are flushed once a second
WINDOW = 2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    truth = tmp_path_factory.mktemp("truth") / "labels.jsonl"
    with Cluster(ClusterConfig(ranks=RANKS, labels=truth)) as running:
        yield running


@pytest.fixture(scope="module")
def reader(cluster, probe):
    return probe(cluster)


@pytest.fixture(scope="module")
def healthy(reader):
    return reader.window(3, settle=2)


@pytest.fixture
def during(cluster, reader, healthy):
    """Injects a fault, returns the window under it, and after the test clears it and sees the step time come back."""
    injected = []

    def inject(fault, rank, **kwargs):
        injected.append((fault, rank, time.time()))
        cluster.inject(fault, rank=rank, **kwargs)
        return reader.window(WINDOW, settle=SETTLE)

    yield inject
    fault, rank, start = injected[0]
    cluster.clear()
    after = reader.window(1.2, settle=0.8)
    assert after.step_time < 1.2 * healthy.step_time
    label = labels.read(cluster.config.labels)[-1]
    assert (label.fault, label.rank) == (fault, rank)
    assert start <= label.start < label.end <= time.time()


def others(values, rank):
    return [v for r, v in enumerate(values) if r != rank]


def usual(values, rank):
    """What the other ranks have. In a short window one of them may have met a long prompt: the median, not the maximum."""
    return statistics.median(others(values, rank))


def test_without_a_fault_waits_are_small_and_load_is_skewed_a_little(healthy):
    """Every rank decodes; pairs differ as users do; schedulers wait for each other for a small part of a step."""
    assert max(healthy.waits) < 0.25 * healthy.step_time
    assert 1.0 < max(healthy.pairs) / statistics.mean(healthy.pairs) < 4
    assert all(load["num_running_reqs"] > 0 for load in healthy.loads)
    assert 0.7 < healthy.balancedness < 0.95
    assert 0.005 < healthy.prefill_steps < 0.9


def test_context_length_skew(during, healthy):
    """One rank's pairs multiply while its request count stays near its peers'; everybody's step gets longer, nobody waits more."""
    now = during("context_length_skew", 3)
    assert now.pairs[3] > 4 * usual(now.pairs, 3)
    assert now.imbalance[3] < 0.3 * min(others(now.imbalance, 3))
    assert now.loads[3]["num_running_reqs"] < 4 + 3 * statistics.median(load["num_running_reqs"] for load in now.loads)
    assert now.step_time > 1.2 * healthy.step_time
    assert max(now.waits) < 0.25 * now.step_time


def test_request_count_skew(during, healthy):
    """One rank runs many more requests: its tokens and pairs rise together, and the step gets longer for all."""
    now = during("request_count_skew", 6)
    assert now.loads[6]["num_running_reqs"] > 4 * max(others([load["num_running_reqs"] for load in now.loads], 6))
    assert now.tokens[6] > 3 * usual(now.tokens, 6)
    assert now.pairs[6] > 4 * usual(now.pairs, 6)
    assert now.step_time > 1.25 * healthy.step_time


def test_long_prefill(during, healthy):
    """One rank computes chunks of 1024 tokens; its peers' decodes lose their graphs and take much longer."""
    now = during("long_prefill", 1)
    assert now.tokens[1] > 8 * usual(now.tokens, 1)
    assert now.prefill_steps > healthy.prefill_steps + 0.15
    assert now.step_time > 1.4 * healthy.step_time
    assert max(now.waits) < 0.25 * now.step_time


def test_host_cpu_starved(during, healthy):
    """The starved scheduler waits least and makes the others wait; steps get longer; it uses no more CPU than before."""
    now = during("host_cpu_starved", 5)
    assert now.waits.index(min(now.waits)) == 5
    assert now.waits[5] < 0.5 * min(others(now.waits, 5))
    assert now.steps / now.seconds < healthy.steps / healthy.seconds / 1.15
    assert now.cpu[5] < 2 * statistics.median(others(now.cpu, 5)) + 0.001
    assert max(load["num_used_tokens"] for load in now.loads) < 300_000


def test_slow_rank(during, healthy):
    """The working scheduler waits least as well, but its CPU time per step and its own scheduling pass are far above its peers'."""
    now = during("slow_rank", 4)
    assert now.waits.index(min(now.waits)) == 4
    assert now.waits[4] < 0.5 * min(others(now.waits, 4))
    assert now.cpu[4] > 5 * max(others(now.cpu, 4))
    assert now.work[4] > 0.03
    assert now.step_time > 1.15 * healthy.step_time


def test_expert_hotspot(during, healthy):
    """Balance falls and steps get longer, while pairs stay level and nobody waits more."""
    now = during("expert_hotspot", 2)
    assert now.balancedness < 0.4
    assert now.step_time > 1.15 * healthy.step_time
    assert max(now.waits) < 0.25 * now.step_time
    assert max(load["num_used_tokens"] for load in now.loads) < 300_000


def test_whole_group_slow(during, healthy):
    """All steps are 1.4 times as long; nothing singles out a rank."""
    now = during("whole_group_slow", None)
    assert 1.25 < now.step_time / healthy.step_time < 1.7
    assert max(now.waits) < 0.25 * now.step_time
    assert now.balancedness == pytest.approx(healthy.balancedness, abs=0.1)


def test_stuck_rank(cluster, reader, healthy):
    """All ranks freeze with work pending; the front end still answers, with timestamps that stand still; it ends when the rank goes on."""
    cluster.inject("stuck_rank", rank=2)
    time.sleep(0.5)
    before = reader.loads()
    time.sleep(1.5)
    after = reader.loads()
    assert [a["timestamp"] for a in after] == [b["timestamp"] for b in before]
    assert sum(load["num_running_reqs"] for load in after) > 0
    assert reader.get("/health").status_code == 200  # for 20 s: as an engine's, it does not know yet
    cluster.clear()
    time.sleep(1.2)
    assert all(now["timestamp"] > then["timestamp"] for now, then in zip(reader.loads(), after, strict=True))


def test_a_weaker_fault_does_less(cluster, reader, healthy):
    """Severity scales: half the long contexts, about half the extra pairs."""
    cluster.inject("context_length_skew", rank=0, severity=0.5)
    half = reader.window(1.2, settle=0.8)
    cluster.clear()
    assert 350_000 < half.loads[0]["num_used_tokens"] < 600_000
    assert half.step_time < 1.35 * healthy.step_time


def test_two_faults_act_at_once_and_end_apart(cluster, reader, healthy):
    """A mixture shows both causes; clearing one leaves the other."""
    cluster.inject("whole_group_slow")
    cluster.inject("context_length_skew", rank=7)
    both = reader.window(1.2, settle=0.8)
    cluster.clear("context_length_skew")
    one = reader.window(1.2, settle=0.8)
    cluster.clear()
    assert both.pairs[7] > 4 * usual(both.pairs, 7)
    assert one.loads[7]["num_used_tokens"] < 300_000 < both.loads[7]["num_used_tokens"]
    assert both.step_time > 1.1 * one.step_time
    assert one.step_time > 1.2 * healthy.step_time


def test_wrong_injections_are_refused_by_name(cluster):
    """A misspelt fault gets the nearest name, a rank that does not exist or is already ill gets told so."""
    with pytest.raises(ValueError, match="did you mean slow_rank"):
        cluster.inject("slow_rnk", rank=0)
    with pytest.raises(ValueError, match="ranks 0 to 7"):
        cluster.inject("slow_rank", rank=8)
    cluster.inject("slow_rank", rank=1, severity=0.01)
    with pytest.raises(ValueError, match="already"):
        cluster.inject("slow_rank", rank=1)
    cluster.clear()


def test_no_page_tells_the_truth(cluster, reader):
    """Neither labels nor fault names are served anywhere: an analyser that reads the pages cannot cheat."""
    cluster.inject("whole_group_slow")
    pages = [reader.get(path).text for path in ("/v1/loads", "/metrics", "/server_info", "/openapi.json")]
    cluster.clear()
    for page in pages:
        assert not [name for name in (*faults.load(), "fault", "labels.jsonl") if name in page]


def test_every_fault_is_complete():
    """The file's name is the fault's id; each says what it does and where it can be made."""
    for name, fault in faults.load().items():
        assert fault.start.__module__ == f"workload.faults.{name}"
        assert fault.about.endswith(".")
        assert set(fault.devices) <= {"virtual", "cpu", "cuda"}
