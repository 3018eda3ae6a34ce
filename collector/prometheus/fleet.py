"""Which series are of one server, and which servers make one engine: told by the labels alone, because nothing else is known. Pure.

A server is what has one set of target labels (instance, job, pod, whatever relabelling put there). Of one model and role, servers whose
ranks are all different are one engine; servers that hold the same ranks are several, and a label that leaves each rank once and a rank 0 in
every part tells them apart. Where no label does, nothing is guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

from collector.engines.limits import name_ranks, rank_of
from collector.model import Problem
from collector.prometheus.queries import Kept

Labels = Mapping[str, str]

_OF_ENGINES = (
    "__name__ model_name engine_type engine dp_rank tp_rank pp_rank moe_ep_rank pid priority category mode forward_overlap forward_mode"
    " kind rank_state layer le source reason"
)
OWN = frozenset(_OF_ENGINES.split())
"""Labels that engines write themselves; all others are the target's."""

PER_SERVER = frozenset({"instance", "pod", "pod_name", "node", "host", "hostname", "container", "endpoint", "job"})
"""Labels that usually differ between the nodes of one engine, too; they are named last where a label is asked for."""

_RANK = {Kept.SGLANG_METRICS: "dp_rank", Kept.SGLANG_GAUGES: "dp_rank", Kept.SGLANG_LOADS: "dp_rank", Kept.VLLM_METRICS: "engine"}
SHOWN = 4
"""Servers or labels that a message names."""


def plain(labels: dict[str, str]) -> dict[str, str]:
    """Labels as the engine wrote them: where a target label of the same name pushed one aside (`exported_engine`), it is put back."""
    aside = _aside(tuple(labels))
    if not aside:
        return labels
    return {name: value for name, value in labels.items() if name not in aside} | {
        name.removeprefix("exported_"): labels[name] for name in aside
    }


@lru_cache(maxsize=1024)
def _aside(names: tuple[str, ...]) -> frozenset[str]:
    """Which names of a series' labels are an engine's that was pushed aside. Thousands of series have a few dozen lists of names."""
    return frozenset(name for name in names if name.startswith("exported_") and name.removeprefix("exported_") in OWN)


@dataclass(slots=True)
class Server:
    """One target with its series. `ranks`: those that its own metrics speak for."""

    kind: str  # "sglang", "vllm"
    model: str
    role: str
    target: dict[str, str]
    ranks: set[int] = field(default_factory=set)
    replicas: set[str] = field(default_factory=set)  # values of the replica label

    @property
    def name(self) -> str:
        """As a person would name it."""
        return self.target.get("instance") or self.target.get("pod") or ",".join(f"{k}={v}" for k, v in sorted(self.target.items()))

    @property
    def replica(self) -> str:
        """The replica whose series are taken: the first by name."""
        return min(self.replicas, default="")


@dataclass(frozen=True, slots=True)
class Engine:
    """The servers of one engine. `id`: what a person would type to read it live."""

    id: str
    kind: str
    servers: tuple[Server, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """All engines that could be told apart, and what could not."""

    engines: tuple[Engine, ...]
    problems: tuple[Problem, ...] = ()


def target_of(labels: Labels) -> tuple[dict[str, str], str]:
    """The labels of the target, and which replica of Prometheus scraped it."""
    target = {name: value for name, value in labels.items() if name not in OWN}
    replica = ",".join(target.pop(name) for name in sorted(target) if is_replica(name))
    return target, replica


def of_rank(kept: Kept, labels: Labels) -> bool:
    """Whether a series tells by itself which rank of which model it is of. Those of /v1/loads, of the experts' balance and of vLLM's
    configuration, whose labels are settings, do not."""
    if kept.ours:
        return False  # it names engines as slowrank's configuration does
    if kept is Kept.VLLM_METRICS:
        return not labels.get("__name__", "").endswith("cache_config_info")
    return "tp_rank" in labels


def is_replica(name: str) -> bool:
    """Whether a label says which of two identical Prometheus servers scraped: replica, prometheus_replica, __replica__."""
    return "replica" in name.lower()


def arrange(series: Sequence[tuple[Kept, Labels]], where: str) -> Fleet:
    """The engines that the series are of. `where` is the server's URL, for messages."""
    problems: list[Problem] = []
    servers = _once(_servers(series), where, problems)
    groups: dict[tuple[str, str, str], list[Server]] = defaultdict(list)
    for server in servers:
        groups[server.kind, server.model, server.role].append(server)
    engines: list[tuple[str, list[Server]]] = []
    for (kind, model, role), group in sorted(groups.items()):
        parts = partition(group)
        if parts is None:
            problems.append(_ambiguous(where, model, role, group))
        else:
            engines += [(kind, part) for part in parts]
    names = [",".join(server.name for server in part) for _, part in engines]
    made = []
    for (kind, part), name in zip(engines, names, strict=True):
        apart = _distinctive(part, [other for _, other in engines if other is not part]) if names.count(name) > 1 else ""
        made.append(Engine(apart + name, kind, tuple(part)))
    return Fleet(tuple(sorted(made, key=lambda engine: engine.id)), tuple(problems))


def _servers(series: Sequence[tuple[Kept, Labels]]) -> list[Server]:
    names = target_names(labels for _, labels in series)
    found: dict[object, Server] = {}
    alike: dict[object, tuple[Server, str]] = {}  # series that differ in the engine's own labels only are looked at once
    for kept, labels in series:
        if not of_rank(kept, labels):
            continue
        mark = (kept, labels.get("model_name"), labels.get("engine_type"), *map(labels.get, names))
        known = alike.get(mark)
        if known is None:
            target, replica = target_of(labels)
            known = alike[mark] = found.setdefault(key_of(kept, labels, target), _server(kept, labels, target)), replica
        server, replica = known
        server.replicas.add(replica)
        rank = rank_of(labels.get(_RANK[kept], "") or "0")
        if rank is not None:
            server.ranks.add(rank)
    return sorted(found.values(), key=lambda server: (server.name, sorted(server.target.items())))


def target_names(series: Iterable[Labels]) -> tuple[str, ...]:
    """Names of all target labels of some series."""
    shapes = {tuple(labels) for labels in series}
    return tuple(sorted({name for shape in shapes for name in shape} - OWN))


def key_of(kept: Kept, labels: Labels, target: Labels) -> object:
    """Equal for all series of one server."""
    return kept is Kept.VLLM_METRICS, labels.get("model_name", ""), labels.get("engine_type", ""), frozenset(target.items())


def _server(kept: Kept, labels: Labels, target: dict[str, str]) -> Server:
    kind = "vllm" if kept is Kept.VLLM_METRICS else "sglang"
    return Server(kind, labels.get("model_name", ""), labels.get("engine_type", ""), target)


def _once(servers: list[Server], where: str, problems: list[Problem]) -> list[Server]:
    """Servers less those that are there again under another job; replicas are told."""
    kept: list[Server] = []
    seen: dict[object, Server] = {}
    for server in servers:
        rest = frozenset((name, value) for name, value in server.target.items() if name != "job")
        first = seen.setdefault((server.kind, server.model, server.role, rest, frozenset(server.ranks)), server)
        if first is server or "instance" not in server.target:
            kept.append(server)
            continue
        jobs = " and ".join(f"{one.target.get('job', '')!r:.60}" for one in (first, server))
        what = f"{server.name} is scraped by the jobs {jobs}; the first one's series were taken"
        problems.append(Problem(where, what, "scraping an engine twice costs it twice"))
    if doubled := [server.name for server in kept if len(server.replicas) > 1]:
        what = f"{len(doubled)} targets are there once for each replica of Prometheus ({', '.join(doubled[:SHOWN])})"
        then = "one replica's series were taken; ask a server that removes duplicates, or choose with --match 'replica=\"...\"'"
        problems.append(Problem(where, what, then))
    return kept


def partition(servers: Sequence[Server]) -> list[list[Server]] | None:
    """The engines among servers of one kind, model and role; None when labels do not tell which of them belong together."""
    if _disjoint(servers):
        return [list(servers)]
    names = sorted({name for server in servers for name in server.target})
    varying = [name for name in names if len({server.target.get(name) for server in servers}) > 1]
    for size in (1, 2):
        found = []
        for chosen in combinations(varying, size):
            parts = _by(servers, chosen)
            if all(_disjoint(part) and any(0 in server.ranks for server in part) for part in parts):
                found.append(parts)
        if found:
            fewest = min(map(len, found))
            best = {frozenset(frozenset(map(id, part)) for part in parts): parts for parts in found if len(parts) == fewest}
            return next(iter(best.values())) if len(best) == 1 else None
    return None


def _by(servers: Sequence[Server], names: Sequence[str]) -> list[list[Server]]:
    parts: dict[tuple[str, ...], list[Server]] = defaultdict(list)
    for server in servers:
        parts[tuple(server.target.get(name, "") for name in names)].append(server)
    return list(parts.values())


def _disjoint(servers: Sequence[Server]) -> bool:
    return sum(len(server.ranks) for server in servers) == len(set().union(*(server.ranks for server in servers)))


def _ambiguous(where: str, model: str, role: str, group: Sequence[Server]) -> Problem:
    """Why the servers of a group were not read, and which label would tell them apart."""
    twice = sorted(rank for rank in set().union(*(s.ranks for s in group)) if sum(rank in s.ranks for s in group) > 1)
    names = sorted({name for server in group for name in server.target}, key=lambda name: (name in PER_SERVER, name))
    differ = [name for name in names if len({server.target.get(name) for server in group}) > 1]
    whose = f"{model or 'a model without a name'} ({role or 'no role'})"
    shown = ", ".join(server.name for server in group[:SHOWN]) + (", ..." if len(group) > SHOWN else "")
    what = f"{len(group)} servers of {whose} hold {name_ranks(twice)} more than once, and no label tells which make one engine: {shown}"
    seen = f"the labels {', '.join(differ[:SHOWN])} differ" if differ else "no label differs"
    then = f"{seen}; give each engine's targets a label of their own when scraping, or name one engine: --match 'instance=~\"a|b\"'"
    return Problem(where, what, then)


def _distinctive(part: Sequence[Server], others: Sequence[Sequence[Server]]) -> str:
    """`cluster=a/`: the labels that are one value here and another one elsewhere."""
    here = dict(set.intersection(*(set(server.target.items()) for server in part)))
    elsewhere = [dict(set.intersection(*(set(server.target.items()) for server in other))) for other in others]
    names = [name for name in sorted(here) if any(other.get(name) != here[name] for other in elsewhere) and name != "instance"]
    return "".join(f"{name}={here[name]}," for name in names[:2]).rstrip(",") + "/" if names else ""
