"""What a process of the cluster is told first, and answers first."""

from __future__ import annotations

import msgspec

from workload.config import ClusterConfig


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process does its work; `port` is where the front end listens (0: it has no port)."""

    port: int = 0


class Spec(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a child process is and which inherited sockets it talks through, by peer name: the first message it reads."""

    name: str
    rank: int  # -1: not a rank
    parent: int
    config: ClusterConfig
    loads_path: str
    workdir: str
    links: dict[str, int]
