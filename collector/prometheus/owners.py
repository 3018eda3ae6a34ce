"""Whose each fetched series is: the server that it came from, by its labels. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from collector.prometheus.fleet import Engine, Labels, Server, key_of, of_rank, target_of
from collector.prometheus.queries import Kept

_ANY = frozenset({"job", "endpoint", "metrics_path"})
"""Target labels in which the scrape of another page of the same server differs."""


class Owners:
    """Finds the engine and server of a series. Series of replicas that were not chosen, and of servers that are not read, have none."""

    def __init__(self, engines: tuple[Engine, ...], names: tuple[str, ...]) -> None:
        """`names`: of all target labels of the series that will be asked for."""
        self._names = names
        self._known: dict[object, tuple[Engine, Server] | None] = {}  # by all labels that decide
        self._servers: dict[object, tuple[Engine, Server]] = {}
        self._at: dict[str, list[tuple[Engine, Server]]] = defaultdict(list)
        for engine in engines:
            for server in engine.servers:
                labels = {"model_name": server.model, "engine_type": server.role}
                kept = Kept.VLLM_METRICS if server.kind == "vllm" else Kept.SGLANG_METRICS
                self._servers[key_of(kept, labels, server.target)] = engine, server
                self._at[_place(server.target)].append((engine, server))

    def of(self, kept: Kept, labels: Labels) -> tuple[Engine, Server] | None:
        """The engine and server whose series this is."""
        rank = of_rank(kept, labels)
        mark = (kept, rank, labels.get("model_name"), labels.get("engine_type"), *map(labels.get, self._names))
        if mark not in self._known:
            self._known[mark] = self._find(kept, labels)
        return self._known[mark]

    def _find(self, kept: Kept, labels: Labels) -> tuple[Engine, Server] | None:
        target, replica = target_of(labels)
        if kept.ours:
            return None
        if of_rank(kept, labels):
            found = self._servers.get(key_of(kept, labels, target))
            return found if found is not None and replica == found[1].replica else None
        kind = "vllm" if kept is Kept.VLLM_METRICS else "sglang"
        near = [one for one in self._at[_place(target)] if one[1].kind == kind and _agree(one[1].target, target)]
        return near[0] if len(near) == 1 and replica in {near[0][1].replica, ""} else None


def exported_engines(engines: Iterable[Engine], names: Iterable[str]) -> dict[str, Engine]:
    """The engine that slowrank's own page means by each name: one that is known by its own series, whose URL or host and port the name is;
    or, where only slowrank was scraped, one of that name alone."""
    known = {engine.id: engine for engine in engines}
    return {name: known.get(_bare(name)) or Engine(name, "", ()) for name in sorted(names)}


def _bare(name: str) -> str:
    return ",".join(part.strip().partition("://")[2] or part.strip() for part in name.rstrip("/").split(","))


def _place(target: Labels) -> str:
    return target.get("instance") or target.get("pod") or ""


def _agree(a: Labels, b: Labels) -> bool:
    """Whether two scrapes can be of one server: what both say is the same."""
    return all(b.get(name, value) == value for name, value in a.items() if name not in _ANY)
