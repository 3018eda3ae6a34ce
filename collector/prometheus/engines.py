"""Which nodes make one engine, as far as their series tell. Pure.

Nodes of one engine share a model and number their ranks together; servers of their own each begin with rank 0. Where both readings are
possible, a label of the scrape may separate them; where none does, nothing is guessed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from collector.engines.limits import name_ranks
from collector.model import Problem
from collector.prometheus.nodes import REPLICAS, WAYS, Node

_OF_ONE_NODE = ("instance", "pod", "node", "host", "hostname", "container", "uid", "pod_ip")
"""Labels that name the node itself, and so cannot say which nodes belong together."""

EXAMPLE = """--match 'cluster="a"'"""


BY_ADDRESS = """--match 'instance=~"host0:.*|host1:.*"'"""


@dataclass(frozen=True, slots=True)
class Found:
    """One engine and its nodes, the one with the lowest rank first."""

    id: str  # as a person would type it for a live reading; with a separating label where two engines have the same addresses
    nodes: tuple[Node, ...]


def engines(nodes: Sequence[Node], problems: list[Problem]) -> list[Found]:
    """The engines that these nodes make. Nodes that could be of several are left out; a Problem says which label would separate them."""
    alike: dict[tuple[str, str, str], list[Node]] = defaultdict(list)
    for node in nodes:
        alike[node.kind, node.model, node.role].append(node)
    groups = [group for those in alike.values() for group in _groups(those, problems)]
    ids = Counter(_plain_id(group) for group in groups)
    made = [Found(_plain_id(group) if ids[_plain_id(group)] == 1 else _full_id(group, groups), tuple(group)) for group in groups]
    return sorted(made, key=lambda found: found.id)


def _groups(nodes: list[Node], problems: list[Problem]) -> list[list[Node]]:
    if _disjoint(nodes) or len(nodes) == 1:
        return [_ordered(nodes)]
    if all(0 in node.ranks for node in nodes):
        return [[node] for node in nodes]
    names = {name for node in nodes for name, _ in node.target} - {*_OF_ONE_NODE, *REPLICAS, *WAYS}
    ways = {}
    for name in sorted(names):
        parts: dict[str, list[Node]] = defaultdict(list)
        for node in nodes:
            parts[dict(node.target).get(name, "")].append(node)
        if all(_disjoint(part) and any(0 in node.ranks for node in part) for part in parts.values()):
            ways[name] = [_ordered(part) for part in parts.values()]
    partitions = {frozenset(frozenset(node.instance for node in part) for part in parts) for parts in ways.values()}
    if len(partitions) == 1:
        return next(iter(ways.values()))
    whose = ", ".join(f"{node.instance} has {name_ranks(node.ranks)}" for node in _ordered(nodes)[:4])
    if partitions:
        what, then = f"the labels {', '.join(ways)} group them differently", f"say which nodes are one engine, for example {EXAMPLE}"
    else:
        seen = ", ".join(sorted(names)) or "there is none besides instance and job"
        what = f"no label tells which of {len(nodes)} nodes are one engine ({seen})"
        then = f"give the scrape a label per engine, such as cluster, or name the nodes of one engine: {BY_ADDRESS}"
    problems.append(Problem(nodes[0].model or nodes[0].kind, f"{whose}: {what}; they were not read", then))
    return []


def _disjoint(nodes: Sequence[Node]) -> bool:
    return sum(len(node.ranks) for node in nodes) == len(frozenset().union(*(node.ranks for node in nodes)))


def _ordered(nodes: Sequence[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (min(node.ranks), node.instance))


def _plain_id(group: Sequence[Node]) -> str:
    return ",".join(node.instance for node in group)


def _full_id(group: Sequence[Node], groups: Sequence[Sequence[Node]]) -> str:
    """With the labels by which it differs from the engines of the same addresses."""
    mine = dict(group[0].target)
    others = [dict(other[0].target) for other in groups if _plain_id(other) == _plain_id(group)]
    names = [name for name in mine if any(other.get(name) != mine[name] for other in others)]
    return _plain_id(group) + "{" + ",".join(f'{name}="{mine[name]}"' for name in names) + "}"
