"""Whose each fetched series is: the server that it came from, by its labels. Pure."""

from __future__ import annotations

from collections import defaultdict

from collector.prometheus.fleet import Engine, Labels, Server, key_of, of_rank, target_of
from collector.prometheus.queries import Kept

_ANY = frozenset({"job", "endpoint", "metrics_path"})
"""Target labels in which the scrape of another page of the same server differs."""


class Owners:
    """Finds the engine and server of a series. Series of replicas that were not chosen, and of servers that are not read, have none."""

    def __init__(self, engines: tuple[Engine, ...]) -> None:
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
        target, replica = target_of(labels)
        if of_rank(kept, labels):
            found = self._servers.get(key_of(kept, labels, target))
            return found if found is not None and replica == found[1].replica else None
        kind = "vllm" if kept is Kept.VLLM_METRICS else "sglang"
        near = [one for one in self._at[_place(target)] if one[1].kind == kind and _agree(one[1].target, target)]
        return near[0] if len(near) == 1 and replica in {near[0][1].replica, ""} else None


def _place(target: Labels) -> str:
    return target.get("instance") or target.get("pod") or ""


def _agree(a: Labels, b: Labels) -> bool:
    """Whether two scrapes can be of one server: what both say is the same."""
    return all(b.get(name, value) == value for name, value in a.items() if name not in _ANY)
