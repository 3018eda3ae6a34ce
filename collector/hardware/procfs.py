"""What this node's /proc says of the engine's rank processes: `Looker` makes a page of it (IO), `read` reads such a page (pure).

A page is JSON of our own, so that a capture holds it and a replay reads it again. It names no process but the ranks', and of those
nothing but what is listed in `Process`: no command line, no environment, no user. Facts: proc(5), cgroup v2's documentation; the first
two fields of /proc/PID/schedstat are nanoseconds that the main thread ran, and waited ready to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from collector import signals
from collector.engines.limits import few, name_ranks
from collector.errors import SourceError
from collector.hardware import listeners, titles
from collector.hardware.cards import bus_address
from collector.hardware.kernel_file import number, stat_fields, text
from collector.hardware.listeners import Told
from collector.hardware.titles import Place
from collector.jsonpage import decode
from collector.model import Page, Problem

FORMAT = "slowrank.procfs/1"

RESCAN_LOOKS = 10
"""Looks after which all processes are searched for new schedulers: on a node of thousands of processes a search takes tens of
milliseconds, a look at eight known ones under one."""

REASK_LOOKS = 300
"""Looks after which a port on which nobody listened is asked about again. It looks at all open files of all processes: 37 ms of CPU for 184
processes with 2,400 files, so some 0.4 s on a node of ten times as many, which is 0.1 % of a core."""

MAX_PROCESSES = 256

_HIDDEN = "run on the node itself, with the host's processes in sight (a pod needs hostPID: true)"


class Process(msgspec.Struct, omit_defaults=True):
    """One process of a rank. None: this kernel or this user's rights do not show it."""

    pid: int
    title: str
    state: str = ""  # a letter of proc(5): R, S, D, T, ...
    ran_ns: int | None = None
    waited_ns: int | None = None
    involuntary: int | None = None
    voluntary: int | None = None
    cpus: str = ""  # Cpus_allowed_list
    numa: int | None = None  # node of the CPU that it last ran on
    throttled_us: int | None = None  # of its cgroup, or of an ancestor that was throttled more
    parent: int | None = None  # process that started it


class _Body(msgspec.Struct):
    format: str
    processes: list[Process] = []
    pressure_us: int | None = None  # /proc/pressure/cpu, some
    cards: dict[str, int] = {}  # PCI address -> NUMA node, of NVIDIA's cards
    told: Told = Told.UNASKED  # whose processes these are, by the port; with TREE only the engine's are here


class Looker:
    """Looks at this node's rank processes. `ports`: on which the engine's servers listen, to tell it from others on the node; `root` is
    where /proc and /sys lie: a test's folder, or / mounted elsewhere."""

    def __init__(self, ports: Collection[int] = (), root: Path = Path("/")) -> None:
        self._proc, self._sys = root / "proc", root / "sys"
        self._ports = frozenset(ports)
        self._known: list[int] = []
        self._owned = listeners.Owned()
        self._looks = 0
        self._nodes = dict(_cpu_nodes(self._sys))
        self._cards = dict(_card_nodes(self._sys))

    def look(self) -> bytes:
        """The body of one page. A process that ends while it is read is left out."""
        if self._looks % RESCAN_LOOKS == 0:
            known = self._search()
            # a server listens only once its ranks are up
            if known != self._known or (self._owned.told is Told.NOBODY and self._looks % REASK_LOOKS == 0):
                self._owned = listeners.owned(self._proc, known, self._ports)
            self._known = known
        self._looks += 1
        wanted = [pid for pid in self._known if self._owned.told is not Told.TREE or pid in self._owned.mine]
        found = [process for pid in wanted if (process := self._process(pid)) is not None]
        if len(found) < len(wanted):
            self._looks = 0  # one has ended: its successor has another pid
        pressure = _pressure(text(self._proc / "pressure" / "cpu"))
        return msgspec.json.encode(_Body(FORMAT, found, pressure, self._cards, self._owned.told))

    def _search(self) -> list[int]:
        pids = sorted(int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit())
        return [pid for pid in pids if titles.is_scheduler(self._title(pid))][:MAX_PROCESSES]

    def _title(self, pid: int) -> str:
        return text(self._proc / str(pid) / "cmdline").strip("\0 ").split("\0")[0][: titles.MAX_TITLE]

    def _process(self, pid: int) -> Process | None:
        folder = self._proc / str(pid)
        title, fields = self._title(pid), stat_fields(folder)
        if not titles.is_scheduler(title) or not fields:
            return None
        status = dict(line.split(":", 1) for line in text(folder / "status").splitlines() if ":" in line)
        ran, waited, *_ = [*_numbers(text(folder / "schedstat")), None, None]
        cpu = number(fields[36]) if len(fields) > 36 else None
        return Process(
            pid=pid,
            title=title,
            state=fields[0],
            ran_ns=ran,
            waited_ns=waited,
            involuntary=number(status.get("nonvoluntary_ctxt_switches", "")),
            voluntary=number(status.get("voluntary_ctxt_switches", "")),
            cpus=status.get("Cpus_allowed_list", "").strip()[:200],
            numa=None if cpu is None else self._nodes.get(cpu),
            throttled_us=self._throttled(text(folder / "cgroup")),
            parent=number(fields[1]) if len(fields) > 1 else None,
        )

    def _throttled(self, membership: str) -> int | None:
        """Microseconds for which the process' cgroup, or that of its container or pod above, was held at its quota; the most of them."""
        most: int | None = None
        for line in membership.splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            if controllers and "cpu" not in controllers.split(","):
                continue
            parts = [part for part in path.split("/") if part]
            if ".." in parts:  # of a cgroup namespace that is not ours: the path leads nowhere here
                continue
            base = self._sys / "fs" / "cgroup" / (controllers and "cpu")
            for depth in range(len(parts), -1, -1):
                stat = dict(_pairs(text(base.joinpath(*parts[:depth]) / "cpu.stat")))
                time = stat.get("throttled_usec", stat["throttled_time"] // 1000 if "throttled_time" in stat else None)
                if time is not None:
                    most = max(time, most or 0)
        return most


def body(page: Page) -> _Body:
    """What a page of a Looker holds. Raises SourceError for another body."""
    found = decode(page.body, _Body, page.node)
    if found.format != FORMAT:
        raise SourceError(
            f"{page.node}: {found.format[:60]!r} is not the format that is read here ({FORMAT}); use the slowrank that wrote it"
        )
    return found


@dataclass(frozen=True, slots=True)
class Look:
    """What one page says: a rank has one process, or with several cards one for each; `values` by signal and place."""

    found: Mapping[Place, Process] = field(default_factory=dict)
    values: Mapping[str, Mapping[Place, float]] = field(default_factory=dict)
    cards: Mapping[str, int] = field(default_factory=dict)  # PCI address -> NUMA node
    problems: tuple[Problem, ...] = ()

    def first(self) -> dict[int, Process]:
        """Rank -> the process that schedules it, or the first of those."""
        ranks: dict[int, Process] = {}
        for place in sorted(self.found):
            ranks.setdefault(place.rank, self.found[place])
        return ranks


def read(page: Page, kind: str) -> Look:
    """One page: the processes of an engine of this `kind`, and what the kernel counts of each. Raises SourceError for another body.

    Of several engines on the node the processes of the one at the target's port count, when the page tells them; without that two
    processes of one place are two engines: no values for that rank then, and a Problem.
    """
    body = decode(page.body, _Body, page.node)
    if body.format != FORMAT:
        raise SourceError(
            f"{page.node}: {body.format[:60]!r} is not the format that is read here ({FORMAT}); use the slowrank that wrote it"
        )
    found, problems = _processes(body, kind, page.node)
    values: dict[str, dict[Place, float]] = {}
    for place, process in found.items():
        for name, value in _values(process, body.pressure_us):
            values.setdefault(name, {})[place] = value
    return Look(found, values, body.cards, problems)


_WHY = {
    Told.UNASKED: "which is this engine's is not known",
    Told.NOBODY: "which is this engine's is not known: none in sight that listens on its address' port has started any of them",
    Told.SEVERAL: "which is this engine's is not known: processes of several network namespaces listen on its address' port",
    Told.TREE: "which is this engine's is not known: both stand below what listens on its port",
}
_TELL = "give the engine's own address rather than a proxy's, run as the engine's user or root, or run one engine on this node"


def _processes(body: _Body, kind: str, where: str) -> tuple[dict[Place, Process], tuple[Problem, ...]]:
    """The process of each place, and what is wrong."""
    shown = body.processes[:MAX_PROCESSES]
    cores = {process.pid: place for process in shown if (place := titles.place_of(process.title, kind)) is not None and not place.worker}
    by_place: dict[Place, list[Process]] = defaultdict(list)
    for process in shown:
        if (place := _place(process, kind, cores)) is not None:
            by_place[place].append(process)
    if not by_place:
        return {}, (Problem(where, f"no scheduler process of {kind} is to be seen", _HIDDEN),)
    double = {place.rank for place, those in by_place.items() if len(those) > 1}
    problems: list[Problem] = []
    if double:
        what = f"{name_ranks(double)}: several processes have the same title"
        problems.append(Problem(where, f"{what}; {_WHY[body.told]}, none was read", _TELL))
    return {place: those[0] for place, those in by_place.items() if place.rank not in double}, few(problems)


def _place(process: Process, kind: str, cores: Mapping[int, Place]) -> Place | None:
    """Where a process stands; None for no rank's, and for a worker of which nothing says whose it is."""
    place = titles.place_of(process.title, kind)
    if place is None or not place.worker:
        return place
    above = cores.get(process.parent or 0)
    if above is not None:
        return replace(place, rank=above.rank)
    return place if titles.states_rank(process.title, kind) else None


def _values(process: Process, pressure_us: int | None) -> Iterator[tuple[str, float]]:
    raw = (
        (signals.PROCESS_CPU, process.ran_ns, 1e-9),
        (signals.RUN_QUEUE_DELAY, process.waited_ns, 1e-9),
        (signals.INVOLUNTARY_SWITCHES, process.involuntary, 1.0),
        (signals.CGROUP_THROTTLED, process.throttled_us, 1e-6),
        (signals.CPU_PRESSURE, pressure_us, 1e-6),
    )
    for name, value, unit in raw:
        if value is not None and value >= 0:
            yield name, value * unit
    if process.state:
        yield signals.PROCESS_STOPPED, float(process.state in {"T", "t"})
        yield signals.PROCESS_BLOCKED, float(process.state == "D")


def _numbers(words: str) -> list[int | None]:
    return [number(word) for word in words.split()]


def _pairs(lines: str) -> Iterator[tuple[str, int]]:
    for line in lines.splitlines():
        name, _, value = line.partition(" ")
        if (counted := number(value)) is not None:
            yield name, counted


def _pressure(lines: str) -> int | None:
    """Microseconds of the line `some ... total=N`."""
    for line in lines.splitlines():
        if line.startswith("some "):
            return number(line.rpartition("total=")[2])
    return None


def _cpu_nodes(sys: Path) -> Iterator[tuple[int, int]]:
    for folder in (sys / "devices" / "system" / "node").glob("node[0-9]*"):
        for part in text(folder / "cpulist").strip().split(","):
            low, _, high = part.partition("-")
            first, last = number(low), number(high or low)
            if first is not None and last is not None and last < 1 << 16:
                yield from ((cpu, int(folder.name.removeprefix("node"))) for cpu in range(first, last + 1))


def _card_nodes(sys: Path) -> Iterator[tuple[str, int]]:
    for folder in (sys / "bus" / "pci" / "devices").glob("*"):
        if text(folder / "vendor").strip() == "0x10de" and text(folder / "class").startswith(("0x0300", "0x0302")):
            node = number(text(folder / "numa_node"))  # -1: the machine has only one
            if node is not None:
                yield bus_address(folder.name), node
