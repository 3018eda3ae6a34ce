"""A running cluster: N rank processes, the cards, and a front end that serves SGLang's pages on a loopback port.

with Cluster(ClusterConfig()) as cluster:
    cluster.inject("slow_rank", rank=3)
    ...  # read cluster.url + "/v1/loads" and "/metrics"
    cluster.clear()
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from workload import labels, schedule
from workload.config import ClusterConfig
from workload.control import Control
from workload.device import cuda
from workload.exchange import edges
from workload.nursery import ClusterError, Nursery
from workload.wire import Spec

START_SECONDS = 60.0  # ten interpreters on a busy machine; a few seconds on an idle one
START_SECONDS_RANK = 3.0  # more for each rank: an interpreter takes half a second of a core, and the machine may be shared by six


@dataclass(slots=True)
class _Active:
    fault: str
    rank: int | None
    severity: float
    ranks: tuple[int, ...]
    start: float
    end: Callable[[], None]


class Cluster:
    """Owns the processes. Nothing of it is left after `stop`, nor after the owner's death, however that came."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._nursery: Nursery | None = None
        self._workdir: Path | None = None
        self._port = 0
        self._active: list[_Active] = []

    @property
    def url(self) -> str:
        """Where the front end answers."""
        if not self._port:
            raise ClusterError("the cluster is not running")
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts all processes, and returns once every rank has stepped and the front end answers."""
        if self._nursery is not None:
            raise ClusterError("the cluster is already running")
        if self.config.device == "cuda" and (why := cuda.refusal()) is not None:
            raise ClusterError(why)
        try:
            self._workdir = Path(tempfile.mkdtemp(prefix="slowrank-workload-"))
            (self._workdir / "metrics").mkdir()
            specs, sockets = _plan(self.config, self._workdir)
            self._nursery = Nursery(specs, sockets, self._workdir)
            self._nursery.start()
            self._port = self._nursery.wait_ready(START_SECONDS + START_SECONDS_RANK * self.config.ranks)["frontend"].port
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raises ClusterError, with the name of the process, if one has died."""
        self._running().check()

    def pid(self, name: str) -> int:
        """The process id of `rank0` ..., `fabric` or `frontend`."""
        return self._running().pid(name)

    def inject(self, fault: str, *, rank: int | None = None, severity: float | None = None) -> None:
        """Begins a fault; more than one may act at a time. `severity` None takes the fault's own."""
        nursery = self._running()
        nursery.check()
        found = schedule.find(fault)
        schedule.allowed(found, rank, severity, self.config)
        if found.whole_group:
            rank = None
        if any((a.fault, a.rank) == (fault, rank) for a in self._active):
            raise ValueError(f"{fault} already acts on rank {rank}")
        if severity is None:
            severity = found.severity
        start = time.time()
        end = found.start(Control(self.config, nursery), rank or 0, severity)
        ranks = () if rank is None else found.ranks(rank, self.config.ranks)
        self._active.append(_Active(fault, rank, severity, ranks, start, end))

    def worsen(self, fault: str, *, rank: int | None = None, severity: float | None = None) -> None:
        """Gives a fault that acts another severity. Raises ValueError for one that does not act, or cannot change."""
        nursery = self._running()
        found = schedule.find(fault)
        schedule.allowed(found, rank, severity, self.config)
        active = next((a for a in self._active if a.fault == fault and (found.whole_group or a.rank == rank)), None)
        if active is None or not found.ramps:
            raise ValueError(f"{fault} " + ("does not act" if active is None else "cannot rise while it acts") + f" on rank {rank}")
        active.severity = found.severity if severity is None else severity
        active.end = found.start(Control(self.config, nursery), rank or 0, active.severity)

    def clear(self, fault: str | None = None, *, rank: int | None = None) -> None:
        """Ends all faults, or those of one name, or of one rank, and writes their labels. One of the whole group is on any rank."""
        for active in [a for a in self._active if fault in (None, a.fault) and (rank is None or a.rank in (None, rank))]:
            active.end()
            self._active.remove(active)
            self._label(active)

    def stop(self) -> None:
        """Ends everything. May be called at any time, and twice."""
        if self._nursery is not None:
            for active in self._active:
                with contextlib.suppress(ClusterError):
                    active.end()
                self._label(active)
            self._active.clear()
            self._nursery.stop()
            self._nursery = None
        if self._workdir is not None:
            shutil.rmtree(self._workdir, ignore_errors=True)
            self._workdir = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _running(self) -> Nursery:
        if self._nursery is None:
            raise ClusterError("the cluster is not running")
        return self._nursery

    def _label(self, active: _Active) -> None:
        if self.config.labels is not None:
            now = time.time()
            label = labels.Label(active.fault, active.rank, active.severity, active.start, now, active.ranks)
            labels.append(self.config.labels, label)


def _plan(config: ClusterConfig, workdir: Path) -> tuple[list[Spec], list[socket.socket]]:
    """Every process with its sockets' numbers, and the sockets themselves, to be closed once the children have them."""
    ranks = [f"rank{r}" for r in range(config.ranks)]
    names = [*ranks, "fabric", "frontend"]
    links: dict[str, dict[str, int]] = {name: {} for name in names}
    sockets: list[socket.socket] = []
    pairs = [(ranks[a], ranks[b]) for a, b in edges(config.ranks)]
    pairs += [(rank, hub) for rank in ranks for hub in ("fabric", "frontend")]
    for a, b in pairs:
        one, other = socket.socketpair()
        sockets += [one, other]
        links[a][b] = one.fileno()
        links[b][a] = other.fileno()
    told = msgspec.structs.replace(config, labels=None)  # no process that a scraper talks to knows where the truth is
    loads = str(workdir / "loads")
    specs = [
        Spec(
            name=name,
            rank=ranks.index(name) if name in ranks else -1,
            parent=os.getpid(),
            config=told,
            loads_path=loads,
            workdir=str(workdir),
            links=links[name],
        )
        for name in names
    ]
    return specs, sockets
