"""Where ranks wait for a late one, in real processes over real sockets: the split that the real engine's exchange was measured to have."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys

import pytest

from workload.exchange import Column, Exchange, OutOfStepError, children, edges, parent
from workload.wire import PeerLostError

RANKS = 8
LATE = (0, 4, 5, 7)
STALL = 0.060  # seconds
LOOPS = 15

ONE_RANK = """
import json, socket, sys, time
from workload.exchange import Exchange
rank, ranks, loops, stall, late_ranks, links = json.loads(sys.argv[1])
exchange = Exchange(rank, ranks, {int(peer): socket.socket(fileno=fd) for peer, fd in links.items()})
row = [rank] * 11
exchange.gather(row)
for late in late_ranks:
    broadcast = gather = 0.0
    for _ in range(loops):
        time.sleep(0.002)
        if rank == late:
            time.sleep(stall)
        broadcast += exchange.broadcast()
        table, seconds = exchange.gather(row)
        assert [r[0] for r in table] == list(range(ranks))
        gather += seconds
    print(json.dumps([broadcast / loops, gather / loops]), flush=True)
"""


def test_the_tree_is_gloos():
    """The parent of k is k - 2^floor(log2 k)."""
    assert [parent(k) for k in range(1, 8)] == [0, 0, 1, 0, 1, 2, 3]
    assert [children(k, 8) for k in range(8)] == [[1, 2, 4], [3, 5], [6], [7], [], [], [], []]
    assert [children(k, 5) for k in range(5)] == [[1, 2, 4], [3], [], [], []]


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_every_rank_is_reached_once_over_an_edge_that_exists(ranks):
    """Each rank but 0 is the child of exactly one, and every pair that talks has a socket."""
    reached = [(r, c) for r in range(ranks) for c in children(r, ranks)]
    assert sorted(c for _, c in reached) == list(range(1, ranks))
    assert set(reached) <= set(edges(ranks))
    assert all((0, r) in edges(ranks) for r in range(1, ranks))


def test_the_row_has_the_engines_eleven_columns():
    """Tokens first, attention pairs last."""
    assert (len(Column), Column.NUM_TOKENS, Column.ATTENTION_PAIRS) == (11, 0, 10)


def test_a_lost_peer_and_a_rank_out_of_step_are_told():
    """Neither may look like a wait."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall((2).to_bytes(8, "little"))
        with pytest.raises(OutOfStepError):
            Exchange(1, 2, {0: ours}).broadcast()
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(PeerLostError):
            Exchange(1, 2, {0: ours}).broadcast()


@pytest.fixture(scope="module")
def waits() -> dict[int, tuple[list[float], list[float]]]:
    """For each late rank the mean seconds per loop of every rank: in the control broadcast, and in the metadata exchange."""
    links: list[dict[int, socket.socket]] = [{} for _ in range(RANKS)]
    for a, b in edges(RANKS):
        links[a][b], links[b][a] = socket.socketpair()
    processes = []
    for rank in range(RANKS):
        fds = {peer: sock.fileno() for peer, sock in links[rank].items()}
        told = json.dumps([rank, RANKS, LOOPS, STALL, LATE, fds])
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", ONE_RANK, told],
                stdout=subprocess.PIPE,
                pass_fds=list(fds.values()),
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )
        )
    for mine in links:
        for sock in mine.values():
            sock.close()
    try:
        lines = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    means = [[json.loads(line) for line in of_rank] for of_rank in lines]
    return {late: ([m[i][0] for m in means], [m[i][1] for m in means]) for i, late in enumerate(LATE)}


@pytest.mark.cluster
@pytest.mark.parametrize("late", LATE)
def test_the_late_rank_waits_least_in_broadcast_and_exchange_together(waits, late):
    """Whoever is late, everybody else waits for it somewhere, and it alone does not."""
    broadcast, gather = waits[late]
    total = [b + g for b, g in zip(broadcast, gather, strict=True)]
    others = [t for r, t in enumerate(total) if r != late]
    assert total.index(min(total)) == late
    assert total[late] < 0.5 * min(others)
    assert min(others) > 0.7 * STALL


@pytest.mark.cluster
def test_a_late_root_does_not_show_in_the_metadata_exchange(waits):
    """Rank 0 late: the victims wait in the broadcast that it opens, and the exchange is short on all ranks."""
    broadcast, gather = waits[0]
    assert max(gather) < 0.5 * min(broadcast[1:])


@pytest.mark.cluster
@pytest.mark.parametrize("late", [4, 5, 7])
def test_the_parent_of_a_late_rank_hides_in_the_metadata_exchange_too(waits, late):
    """It was held in the broadcast, so its exchange is as short as the late rank's: the exchange alone does not tell them apart."""
    broadcast, gather = waits[late]
    held = parent(late)
    victims = statistics.median(g for r, g in enumerate(gather) if r not in (late, held))
    assert gather[held] < 0.5 * victims
    assert gather[late] < 0.5 * victims
    assert broadcast[held] > 0.7 * STALL
