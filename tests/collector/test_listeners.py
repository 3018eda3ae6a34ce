"""Two engines on one node, told apart by the port: who listens, who was started by whom, and when nothing tells."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.hardware import listeners, procfs
from collector.hardware.listeners import Told
from collector.hardware.procfs import Looker
from collector.model import Page, Source

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
A, B = 30000, 31000


class Node:
    """A folder that looks like /proc: each process with its parent and the sockets that it holds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.processes: dict[int, tuple[str, int, tuple[int, ...]]] = {}

    def write(self, path: str, text: str) -> None:
        file = self.root / "proc" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def add(self, pid: int, title: str, parent: int, *sockets: int) -> None:
        self.write(f"{pid}/cmdline", title + "\0")
        self.write(f"{pid}/stat", f"{pid} (a) ) b) S {parent} " + "0 " * 40)
        for k, inode in enumerate(sockets):
            link = self.root / "proc" / str(pid) / "fd" / str(k)
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(f"socket:[{inode}]")

    def listen(self, space: str, *pairs: tuple[int, int], name: str = "tcp") -> None:
        """(port, inode) of a network namespace, given as a process id or self; a connection from the same port beside each."""
        lines = [
            f"   {k}: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0"
            for k, (port, inode) in enumerate(pairs)
            for state, inode in (("0A", inode), ("01", inode + 5000))
        ]
        self.write(f"{space}/net/{name}", HEAD + "\n".join(lines) + "\n")

    def look(self, *ports: int) -> tuple[dict[int, int], str]:
        """Rank -> process as it is read, and what is wrong."""
        body = Looker(ports, self.root).look()
        found = procfs.read(Page("e", "localhost", Source.PROCFS, 1.0, 0.0, 200, "", body), "sglang")
        return {rank: process.pid for rank, process in found.first().items()}, " ".join(map(str, found.problems))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Two SGLang servers of two ranks that one shell (50) started: 100 at port A, 200 at port B."""
    node = Node(tmp_path)
    node.add(1, "init", 0)
    node.add(50, "bash", 1)
    for server, inode in ((100, 7), (200, 8)):
        node.add(server, "python -m sglang.launch_server", 50, inode)
        for rank in range(2):
            node.add(server + 1 + rank, f"sglang::scheduler_DP{rank}_TP{rank}", server)
    node.listen("self", (A, 7), (B, 8))
    return node


def test_the_port_tells_which_engine_is_meant(node: Node) -> None:
    """The processes that the listening server started are the engine's."""
    assert node.look(A) == ({0: 101, 1: 102}, "")
    assert node.look(B) == ({0: 201, 1: 202}, "")


def test_without_a_port_or_a_listener_nothing_is_guessed(node: Node) -> None:
    """No values, and why: no address was given, or nobody in sight listens at it."""
    ranks, said = node.look()
    assert (ranks, "which is this engine's is not known;" in said) == ({}, False)
    assert "ranks 0-1: several processes have the same title" in said
    ranks, said = node.look(A + 1)
    assert ranks == {}
    assert "none in sight that listens on its address' port" in said
    assert "the engine's own address rather than a proxy's" in said


def test_several_api_servers_stand_beside_their_schedulers(node: Node) -> None:
    """vLLM's way: the socket is held by two API servers, whose parent started the ranks too."""
    for pid in (110, 111):
        node.add(pid, "VLLM::APIServer", 100, 7)
    assert node.look(A)[0] == {0: 101, 1: 102}


def test_a_listener_beside_its_ranks_counts_with_its_parent(tmp_path: Path) -> None:
    """A front end that is a child like the ranks; the same under init says nothing, as everything is."""
    node = Node(tmp_path)
    node.add(1, "init", 0)
    for launcher, inode in ((100, 7), (200, 8)):
        node.add(launcher, "launcher", 1)
        node.add(launcher + 9, "front end", launcher, inode)
        node.add(launcher + 1, "sglang::scheduler", launcher)
    node.listen("self", (A, 7))
    assert node.look(A) == ({0: 101}, "")
    node.add(300, "proxy", 1, 9)
    node.listen("self", (B, 9))
    assert node.look(B)[0] == {}


def test_forked_schedulers_that_hold_the_socket_are_no_servers(tmp_path: Path) -> None:
    """Whoever inherits a socket holds it; the server is above all of them."""
    node = Node(tmp_path)
    node.add(1, "init", 0)
    for server, inode in ((100, 7), (200, 8)):
        node.add(server, "server", 1, inode)
        for rank in range(2):
            node.add(server + 1 + rank, f"sglang::scheduler_DP{rank}", server, inode)
    node.listen("self", (A, 7), (B, 8))
    assert node.look(A) == ({0: 101, 1: 102}, "")


def test_containers_with_the_same_port_are_several(node: Node) -> None:
    """Nobody listens in our own network namespace, two do in others: whose address that is, is not known. One alone is the engine's."""
    node.listen("self")
    for server in (100, 200):
        for pid in (server, server + 1, server + 2):
            node.listen(str(pid), (A, 7 if server == 100 else 8), name="tcp6")
    assert "several network namespaces" in node.look(A)[1]
    for pid in (200, 201, 202):
        node.listen(str(pid), (B, 8), name="tcp6")
    assert node.look(A) == ({0: 101, 1: 102}, "")


def test_two_engines_below_one_listener_stay_ambiguous(node: Node) -> None:
    """A launcher that started both and listens itself tells nothing."""
    node.add(60, "launcher", 1)
    for pid in (100, 200):
        node.write(f"{pid}/stat", f"{pid} (x) S 60 " + "0 " * 40)
    link = node.root / "proc/60/fd/9"
    link.parent.mkdir()
    link.symlink_to("socket:[77]")
    node.listen("self", (B + 1, 77))
    assert "both stand below what listens on its port" in node.look(B + 1)[1]


def test_files_that_cannot_be_read_or_make_no_sense_tell_nothing(node: Node) -> None:
    """Damaged tables, a process that vanishes, a circle of parents: no listener, no error."""
    node.write("self/net/tcp", HEAD + "   0: nonsense\n 1: 0100007F:ZZZZ x 0A a b c d e f\n\0\0\n")
    assert node.look(A)[0] == {}
    node.listen("self", (A, 7))
    node.write("50/stat", "50 (x) S 100 " + "0 " * 40)
    (node.root / "proc/200/stat").unlink()
    assert node.look(A)[0] == {0: 101, 1: 102}
    (node.root / "proc/101/stat").unlink()
    assert node.look(A)[0] == {1: 102}


@given(st.dictionaries(st.integers(1, 12), st.integers(0, 12)), st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)))
def test_any_tree_gives_a_part_of_the_schedulers(parents: dict[int, int], holders: set[int], schedulers: set[int]) -> None:
    """Also one with circles and gaps, which a process id that is used again can make."""
    assert listeners._tree(parents, holders, schedulers) <= schedulers


SERVER = """
import multiprocessing, socket, sys, time
fork = multiprocessing.get_context("fork")
def rank(k, up):
    import setproctitle
    setproctitle.setproctitle(f"sglang::scheduler_DP9{k}_TP0")
    up.wait()
    time.sleep(60)
if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listening:
        up = fork.Barrier(3)
        ranks = [fork.Process(target=rank, args=(k, up), daemon=True) for k in range(2)]
        for one in ranks:
            one.start()
        up.wait()
        print(listening.getsockname()[1], flush=True)
        sys.stdin.read()
"""


@contextlib.contextmanager
def running() -> Iterator[tuple[int, int]]:
    """(process, port) of a server with two ranks."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="this system has no /proc")
def test_two_real_servers_are_told_apart() -> None:
    """On this machine's own /proc: both have ranks of the same titles, the port says whose are whose."""
    with running() as (first, port), running() as (second, other), socket.create_server(("127.0.0.1", 0)) as third:
        for server, address in ((first, port), (second, other)):
            body = json.loads(Looker([address]).look())
            parents = {process["parent"] for process in body["processes"]}
            assert (body["told"], parents) == (Told.TREE, {server})
        body = json.loads(Looker([third.getsockname()[1]]).look())
        parents = {process["parent"] for process in body["processes"]}
        assert parents == {first, second}  # this test listens there, and has started both
