"""A cluster starts, serves, tells who died, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from workload import labels
from workload.cluster import Cluster
from workload.config import ClosedLoop, ClusterConfig, Lengths, OpenLoop, Traffic
from workload.control import Control
from workload.nursery import ClusterError
from workload.run import run
from workload.schedule import Scheduled, parse
from workload.wire import Pin

OWNER = """
import json, signal, sys, time
from workload.cluster import Cluster
from workload.config import ClusterConfig
signal.signal(signal.SIGINT, signal.default_int_handler)  # as a terminal starts it; a shell's background does not
with Cluster(ClusterConfig(ranks=3)) as cluster:
    cluster.inject("stuck_rank", rank=1)
    print(json.dumps([cluster.pid(name) for name in ("rank0", "rank1", "rank2", "fabric", "frontend")]), flush=True)
    time.sleep(60)
"""


def processes(cluster: Cluster) -> list[int]:
    return [cluster.pid(name) for name in (*(f"rank{r}" for r in range(cluster.config.ranks)), "fabric", "frontend")]


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """Where clusters keep their files during a test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.cluster
@pytest.mark.beside(row=3)
@pytest.mark.parametrize(
    ("config", "accelerator"),
    [
        (ClusterConfig(ranks=2), "NVIDIA H20-3e (virtual)"),
        (ClusterConfig(ranks=2, device="cpu", method="total_tokens"), "CPU (numpy)"),
        (ClusterConfig(ranks=5, traffic=None), "NVIDIA H20-3e (virtual)"),
    ],
)
def test_it_serves_the_engines_pages_and_stops_clean(config, accelerator, workdir, probe, gone):
    """Each rank has a slot, every page says which device it ran on, and after stop neither process nor file is left."""
    cluster = Cluster(config)
    cluster.start()
    try:
        pids = processes(cluster)
        reader = probe(cluster)
        page = reader.get("/v1/loads").json()
        assert (page["version"], page["accelerator"]) == ("0.5.23", accelerator)
        assert [load["dp_rank"] for load in page["loads"]] == list(range(config.ranks))
        assert all(load["timestamp"] > 0 for load in page["loads"])
        info = reader.get("/server_info").json()
        assert (info["dp_size"], info["attn_dp_size"]) == (1, config.ranks)
        assert reader.get("/health").status_code == 200
        assert "sglang:dp_attention_steps_total" in reader.get("/metrics").text
        cluster.check()
    finally:
        cluster.stop()
        cluster.stop()
    assert gone(pids)
    assert list(workdir.iterdir()) == []
    with pytest.raises(ClusterError, match="not running"):
        _ = cluster.url


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_an_idle_cluster_runs_nothing_until_somebody_asks(probe):
    """Without requests no step is counted and idle seconds are; then the reference load, 3 contexts of 8K and one of 8K or 200K a rank,
    makes rank 0's pairs 7 times its peers', who fall short by 196,608 in every step."""
    with Cluster(ClusterConfig(ranks=4, traffic=None)) as cluster:
        reader = probe(cluster)
        first = reader.page()
        time.sleep(1.2)
        idle = reader.page()
        assert idle["dp_attention_steps_total", "3", "active"] == 0
        assert idle["scheduler_idle_seconds_total", "3", ""] > first["scheduler_idle_seconds_total", "3", ""] + 0.5
        assert time.time() - reader.loads()[3]["timestamp"] < 3

        def exactly(tokens: int) -> Lengths:
            return Lengths(tokens, 0, tokens, tokens)

        control = Control(cluster.config, cluster._running())
        for rank in range(4):
            long = 204_800 if rank == 0 else 8_192
            control.pin(Pin(f"long{rank}", rank, 1, exactly(long), exactly(1), exactly(5000)))
            control.pin(Pin(f"short{rank}", rank, 3, exactly(8_192), exactly(1), exactly(5000)))
        now = reader.window(1.5, settle=1.0)
        assert now.imbalance[0] == 0
        # of some 40 steps; a page may catch a rank between its two counters, which is one step more or less
        assert now.imbalance[1:] == pytest.approx([196_608] * 3, rel=0.03)
        assert now.pairs[0] / now.pairs[1] == pytest.approx(7, rel=0.05)
        assert [load["num_running_reqs"] for load in now.loads] == [4] * 4


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_open_loop_traffic_arrives_at_its_rate(probe):
    """Poisson arrivals do not wait for answers; the router that balances tokens keeps every rank at work."""
    small = Lengths(200, 0, 200, 200)
    traffic = Traffic(arrivals=OpenLoop(rate=40), prompt=small, fresh=Lengths(10, 0, 10, 10), output=Lengths(10, 0, 10, 10))
    with Cluster(ClusterConfig(ranks=2, traffic=traffic, method="total_tokens")) as cluster:
        reader = probe(cluster)
        time.sleep(1)
        first = reader.page()
        time.sleep(1.5)
        last = reader.page()
        finished = ("num_requests_total", "", "")
        assert 25 < last[finished] - first[finished] < 110  # 60 expected
        assert all(last["dp_attention_tokens_total", r, "scheduled"] > 100 for r in "01")


@pytest.mark.cluster
@pytest.mark.beside(row=3)
@pytest.mark.parametrize("victim", ["rank2", "fabric", "frontend"])
def test_a_death_is_told_with_its_name(victim, gone):
    """The process that died is named, not one of those that died of it, and the rest ends too."""
    with Cluster(ClusterConfig(ranks=4)) as cluster:
        pids = processes(cluster)
        os.kill(cluster.pid(victim), signal.SIGKILL)
        deadline = time.monotonic() + 5
        with pytest.raises(ClusterError, match=f"^{victim} was killed by SIGKILL"):
            while time.monotonic() < deadline:
                cluster.check()
                time.sleep(0.05)
        assert gone(pids)
        with pytest.raises(ClusterError, match=victim):
            cluster.inject("slow_rank", rank=0)


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_a_start_that_fails_says_why_and_leaves_nothing(workdir):
    """A taken port: the front end's own words are in the error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = Cluster(ClusterConfig(ranks=2, port=taken.getsockname()[1]))
        with pytest.raises(ClusterError, match=r"(?s)^frontend ended with status 1.*in use"):
            cluster.start()
    assert list(workdir.iterdir()) == []


@pytest.mark.cluster
@pytest.mark.beside(row=3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_outlives_the_owner(number, tmp_path, gone):
    """Ctrl-C in the terminal, a termination and a kill -9: all processes end, a stopped one too, and the files are gone."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    try:
        assert owner.stdout is not None
        pids = json.loads(owner.stdout.readline())
        os.killpg(owner.pid, number) if number == signal.SIGINT else os.kill(owner.pid, number)
        owner.communicate(timeout=10)
        assert gone(pids)
        deadline = time.monotonic() + 3
        while list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert list(tmp_path.iterdir()) == []
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_a_cluster_survives_the_thread_that_started_it(probe):
    """A short-lived starter thread does not take the children with it."""
    cluster = Cluster(ClusterConfig(ranks=2))
    starter = threading.Thread(target=cluster.start)
    starter.start()
    starter.join()
    try:
        time.sleep(0.5)
        cluster.check()
        assert len(probe(cluster).loads()) == 2
    finally:
        cluster.stop()


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_a_run_follows_its_schedule(tmp_path):
    """Faults begin and end when they should, and the labels say when that was."""
    said: list[str] = []
    truth = tmp_path / "labels.jsonl"
    schedule = [Scheduled("whole_group_slow", onset=0.3, duration=0.4), Scheduled("slow_rank", rank=1, onset=0.5, severity=0.1)]
    run(ClusterConfig(ranks=2, labels=truth), schedule, threading.Event(), say=said.append, duration=1.2)
    assert said[0].startswith("http://127.0.0.1:")
    assert [line.split(": ")[1] for line in said[1:]] == [
        "whole_group_slow begins",
        "slow_rank begins on rank 1",
        "whole_group_slow ends",
    ]
    group, rank = labels.read(truth)
    assert (group.fault, group.rank, group.severity) == ("whole_group_slow", None, 1.0)
    assert group.end - group.start == pytest.approx(0.4, abs=0.2)
    assert (rank.fault, rank.rank, rank.severity) == ("slow_rank", 1, 0.1)


def test_a_schedule_is_read_from_text():
    """`fault:key=value,...`; what is left out has its default; what is not understood is named."""
    assert parse("slow_rank:rank=3,onset=20,duration=30,severity=0.5") == Scheduled("slow_rank", 3, 20.0, 30.0, 0.5)
    assert parse("whole_group_slow") == Scheduled("whole_group_slow")
    with pytest.raises(ValueError, match="'begin' is not one of"):
        parse("slow_rank:begin=3")
    with pytest.raises(ValueError, match="rank must be a number, not 'x'"):
        parse("slow_rank:rank=x")


def test_a_cluster_needs_peers():
    """One rank has nobody to wait for."""
    with pytest.raises(ValueError, match="at least 2"):
        ClusterConfig(ranks=1)


def test_no_child_is_told_where_the_truth_is(tmp_path):
    """The label file's path stays with the owner."""
    from workload.cluster import _plan

    specs, sockets = _plan(ClusterConfig(ranks=2, labels=tmp_path / "truth", traffic=None), Path("/nowhere"))
    for sock in sockets:
        sock.close()
    assert [spec.config.labels for spec in specs] == [None] * 4
    assert ClosedLoop().users_per_rank * 2 == 24
