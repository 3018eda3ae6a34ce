"""What this node's /proc says of the engine's scheduler processes: `Looker` makes a page of it (IO), `read` reads such a page (pure).

A page is JSON of our own, so that a capture holds it and a replay reads it again. It names no process but the schedulers, and of those
nothing but what is listed in `Process`: no command line, no environment, no user. Facts: proc(5), cgroup v2's documentation; the first
two fields of /proc/PID/schedstat are nanoseconds that the main thread ran, and waited ready to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collector import signals
from collector.engines.limits import few, name_ranks
from collector.errors import SourceError
from collector.hardware import titles
from collector.hardware.cards import bus_address
from collector.jsonpage import decode
from collector.model import Page, Problem, Reading

FORMAT = "slowrank.procfs/1"

RESCAN_LOOKS = 10
"""Looks after which all processes are searched for new schedulers: on a node of thousands of processes a search takes tens of
milliseconds, a look at eight known ones under one."""

MAX_PROCESSES = 256
_MAX_BYTES = 1 << 16  # of one file of /proc: status has 1.5 KB

_HIDDEN = "run on the node itself, with the host's processes in sight (a pod needs hostPID: true)"


class Process(msgspec.Struct, omit_defaults=True):
    """One scheduler process. None: this kernel or this user's rights do not show it."""

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


class _Body(msgspec.Struct):
    format: str
    processes: list[Process] = []
    pressure_us: int | None = None  # /proc/pressure/cpu, some
    cards: dict[str, int] = {}  # PCI address -> NUMA node, of NVIDIA's cards


class Looker:
    """Looks at this node's scheduler processes. `root` is where /proc and /sys lie: a test's folder, or / mounted elsewhere."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc, self._sys = root / "proc", root / "sys"
        self._known: list[int] = []
        self._looks = 0
        self._nodes = dict(_cpu_nodes(self._sys))
        self._cards = dict(_card_nodes(self._sys))

    def look(self) -> bytes:
        """The body of one page. A process that ends while it is read is left out."""
        if self._looks % RESCAN_LOOKS == 0:
            self._known = self._search()
        self._looks += 1
        found = [process for pid in self._known if (process := self._process(pid)) is not None]
        if len(found) < len(self._known):
            self._looks = 0  # one has ended: its successor has another pid
        return msgspec.json.encode(_Body(FORMAT, found, _pressure(_text(self._proc / "pressure" / "cpu")), self._cards))

    def _search(self) -> list[int]:
        pids = sorted(int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit())
        return [pid for pid in pids if titles.is_scheduler(self._title(pid))][:MAX_PROCESSES]

    def _title(self, pid: int) -> str:
        return _text(self._proc / str(pid) / "cmdline").strip("\0 ").split("\0")[0][: titles.MAX_TITLE]

    def _process(self, pid: int) -> Process | None:
        folder = self._proc / str(pid)
        title, stat = self._title(pid), _text(folder / "stat")
        if not titles.is_scheduler(title) or not stat:
            return None
        fields = stat.rpartition(")")[2].split()  # a command's name may hold anything, also blanks and brackets
        status = dict(line.split(":", 1) for line in _text(folder / "status").splitlines() if ":" in line)
        ran, waited, *_ = [*_numbers(_text(folder / "schedstat")), None, None]
        cpu = _number(fields[36]) if len(fields) > 36 else None
        return Process(
            pid=pid,
            title=title,
            state=fields[0] if fields else "",
            ran_ns=ran,
            waited_ns=waited,
            involuntary=_number(status.get("nonvoluntary_ctxt_switches", "")),
            voluntary=_number(status.get("voluntary_ctxt_switches", "")),
            cpus=status.get("Cpus_allowed_list", "").strip()[:200],
            numa=None if cpu is None else self._nodes.get(cpu),
            throttled_us=self._throttled(_text(folder / "cgroup")),
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
                stat = dict(_pairs(_text(base.joinpath(*parts[:depth]) / "cpu.stat")))
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


def read(page: Page, kind: str) -> Reading:
    """One page in canonical signals, per rank of the engine's `kind`. Raises SourceError for another body.

    With tensor parallelism inside a rank its first process speaks for it, as on the engine's own pages. Two processes with one title
    are two engines on the node: no values then, and a Problem.
    """
    found = body(page)
    ranks, problems = processes(found.processes, kind, page.node)
    values: dict[str, dict[int, float]] = {}
    for rank, process in ranks.items():
        for name, value in _values(process, found.pressure_us):
            values.setdefault(name, {})[rank] = value
    return Reading(page.engine, page.node, page.source, page.arrived, dict.fromkeys(ranks, page.arrived), values, problems=problems)


def processes(found: list[Process], kind: str, where: str) -> tuple[dict[int, Process], tuple[Problem, ...]]:
    """The process that speaks for each rank, and what is wrong."""
    by_place: dict[titles.Place, list[Process]] = defaultdict(list)
    for process in found[:MAX_PROCESSES]:
        if (place := titles.place_of(process.title, kind)) is not None:
            by_place[place].append(process)
    if not by_place:
        return {}, (Problem(where, f"no scheduler process of {kind} is to be seen", _HIDDEN),)
    ranks: dict[int, Process] = {}
    for place in sorted(by_place, key=lambda p: (p.rank, p.stage, p.tensor)):
        ranks.setdefault(place.rank, by_place[place][0])
    double = {place.rank for place, those in by_place.items() if len(those) > 1}
    problems: list[Problem] = []
    if double:
        what = f"{name_ranks(double)}: several processes have the same title"
        problems.append(Problem(where, f"{what}; which is this engine's is not known, none was read", "run one engine on this node"))
    return {rank: process for rank, process in ranks.items() if rank not in double}, few(problems)


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


def _text(path: Path) -> str:
    """A file's beginning; empty when it is not there, not ours to read, or its process has just ended."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _numbers(text: str) -> list[int | None]:
    return [_number(word) for word in text.split()]


def _pairs(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if (number := _number(value)) is not None:
            yield name, number


def _pressure(text: str) -> int | None:
    """Microseconds of the line `some ... total=N`."""
    for line in text.splitlines():
        if line.startswith("some "):
            return _number(line.rpartition("total=")[2])
    return None


def _cpu_nodes(sys: Path) -> Iterator[tuple[int, int]]:
    for folder in (sys / "devices" / "system" / "node").glob("node[0-9]*"):
        for part in _text(folder / "cpulist").strip().split(","):
            low, _, high = part.partition("-")
            first, last = _number(low), _number(high or low)
            if first is not None and last is not None and last < 1 << 16:
                yield from ((cpu, int(folder.name.removeprefix("node"))) for cpu in range(first, last + 1))


def _card_nodes(sys: Path) -> Iterator[tuple[str, int]]:
    for folder in (sys / "bus" / "pci" / "devices").glob("*"):
        if _text(folder / "vendor").strip() == "0x10de" and _text(folder / "class").startswith(("0x0300", "0x0302")):
            node = _number(_text(folder / "numa_node"))  # -1: the machine has only one
            if node is not None:
                yield bus_address(folder.name), node
