"""The two meetings that open every loop of a scheduler: the control broadcast and the metadata exchange.

Both are waits of a real process on real sockets. They follow SGLang 0.5.23's default path over gloo on the CPU:

* `broadcast`: rank 0's control message goes down a binomial tree, where the parent of k is k - 2^floor(log2 k). gloo's
  sends are unbuffered, so a parent is held until each child has received: the parent of a late child waits here.
* `gather`: rows of 11 integers go to rank 0, and the table comes back down the same tree.

So a late rank's victims wait partly in the one and partly in the other, and only the sum of both tells who is late.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from enum import IntEnum

from workload.wire import PeerLostError


class Column(IntEnum):
    """The metadata row, in SGLang's order."""

    NUM_TOKENS = 0
    NUM_TOKENS_FOR_LOGPROB = 1
    DECODE_GRAPH = 2
    IS_EXTEND = 3
    CAN_TBO = 4
    FORWARD_MODE = 5
    PREFILL_GRAPH = 6
    MAX_PREFIX_LEN = 7
    DRAFT_GRAPH = 8
    IS_HEALTH_CHECK = 9
    ATTENTION_PAIRS = 10


_ROW = struct.Struct(f"<{len(Column)}q")
_TURN = struct.Struct("<q")
_ACK = b"\x06"


class OutOfStepError(Exception):
    """Two ranks are not in the same loop iteration: a fault of the program, never of a machine."""


def parent(rank: int) -> int:
    """The rank that sends to `rank` in a binomial tree rooted at 0. Undefined for 0."""
    return rank - (1 << (rank.bit_length() - 1))


def children(rank: int, ranks: int) -> list[int]:
    """The ranks that `rank` sends to, nearest first."""
    return [child for i in range(rank.bit_length(), ranks.bit_length()) if (child := rank + (1 << i)) < ranks]


def edges(ranks: int) -> list[tuple[int, int]]:
    """The pairs of ranks that need a socket: the tree's edges, and everyone with rank 0 for the rows."""
    return sorted({(parent(r), r) for r in range(1, ranks)} | {(0, r) for r in range(1, ranks)})


class Exchange:
    """One rank's place in both meetings. `links` holds a connected stream socket per peer that `edges` gives it."""

    def __init__(self, rank: int, ranks: int, links: Mapping[int, socket.socket]) -> None:
        self._rank = rank
        self._ranks = ranks
        self._links = links
        self._children = children(rank, ranks)
        self._turn = 0

    def broadcast(self) -> float:
        """One control broadcast. Returns the seconds spent in it."""
        start = time.perf_counter()
        self._turn += 1
        message = _TURN.pack(self._turn)
        if self._rank:
            up = self._links[parent(self._rank)]
            if _receive(up, _TURN.size) != message:
                raise OutOfStepError(f"rank {self._rank} is in iteration {self._turn}, its parent is not")
            _send(up, _ACK)
        for child in self._children:
            _send(self._links[child], message)
        for child in self._children:
            _receive(self._links[child], len(_ACK))
        return time.perf_counter() - start

    def gather(self, row: Sequence[int]) -> tuple[list[tuple[int, ...]], float]:
        """One metadata exchange. Returns the row of every rank and the seconds spent.

        On the way down nobody waits for an acknowledgement: every rank has sent its row by then and stands ready.
        """
        start = time.perf_counter()
        own = _ROW.pack(*row)
        if self._rank:
            _send(self._links[0], own)
            table = _receive(self._links[parent(self._rank)], _ROW.size * self._ranks)
        else:
            table = own + b"".join(_receive(self._links[r], _ROW.size) for r in range(1, self._ranks))
        for child in self._children:
            _send(self._links[child], table)
        rows = list(_ROW.iter_unpack(table))
        return rows, time.perf_counter() - start


def _send(link: socket.socket, data: bytes) -> None:
    try:
        link.sendall(data)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise PeerLostError from error


def _receive(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            chunk = link.recv(size - len(data))
        except ConnectionResetError as error:
            raise PeerLostError from error
        if not chunk:
            raise PeerLostError
        data += chunk
    return data
