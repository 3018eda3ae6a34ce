"""Which cards are a rank's. Pure.

Three ways, the surer first: as the user says (`--gpus`); by process, when the driver says which process computes on a card and /proc which
rank that process is; by order, since engines give local rank k the k-th card of its node: ranks 0, 1, ... take the cards of node 0 by
index, then those of node 1. The order holds only if every card on the pages is the engine's, so their number must be right; when it is
not, or a page shows several hosts that the engine's address does not name, nothing is joined and a Problem says what would join them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from collector.engines.limits import MAX_RANKS, name_ranks, rank_of
from collector.errors import ConfigError
from collector.hardware.cards import Card
from collector.model import Problem

EXAMPLE = "for example 0=0,1=1 (rank=GPU), 8=node1/0 for a GPU of the host node1, 0=0+1 for a rank of two GPUs, or a GPU's UUID"

_THEN = f"say which GPU is whose with --gpus, {EXAMPLE}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A card and where it was seen. `number` tells the cards of one source apart."""

    number: int
    node: str  # URL of the page, or the local source's name
    card: Card


@dataclass(frozen=True, slots=True)
class Join:
    """Rank -> numbers of its cards. A rank whose cards are not known is not a key."""

    cards: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def parse_gpus(text: str) -> dict[int, tuple[str, ...]]:
    """`0=0,1=1`: for each rank the names of its cards. Raises ConfigError for anything else."""
    found: dict[int, tuple[str, ...]] = {}
    for part in text.split(","):
        left, equals, right = part.partition("=")
        rank, names = rank_of(left.strip()), tuple(name.strip() for name in right.split("+"))
        if rank is None or not equals or not all(names):
            raise ConfigError(f"--gpus: {part.strip()[:60]!r} is no rank=GPU; {EXAMPLE}")
        if rank in found:
            raise ConfigError(f"--gpus: rank {rank} is given twice; {EXAMPLE}")
        found[rank] = names
    taken = [name for names in found.values() for name in names]
    for name in taken:
        if taken.count(name) > 1:
            raise ConfigError(f"--gpus: GPU {name[:60]} is given twice; {EXAMPLE}")
    return found


def join(
    seen: Sequence[Seen],
    *,
    where: str,
    engine: str,
    ranks: int,
    cards: int | None,
    asked: Mapping[int, tuple[str, ...]],
    owners: Mapping[int, int],
) -> Join:
    """Join the cards of one source. `where`: the source, for messages; `engine`: the engine's id, its nodes' addresses, node 0 first;
    `ranks`: how many DP ranks it has; `cards`: how many cards, if it says so; `asked`: of `parse_gpus`; `owners`: process -> rank."""
    if not seen:
        return Join()
    if asked:
        return _as_asked(seen, where, asked)
    by_pid: dict[int, list[int]] = {}
    for one in seen:
        theirs = {owners[pid] for pid in one.card.pids if pid in owners}
        if len(theirs) == 1:
            by_pid.setdefault(theirs.pop(), []).append(one.number)
        elif theirs:
            what = f"{name_ranks(theirs)} compute on one card, GPU {one.card.index}"
            return Join({}, (Problem(where, what, "what it says is nobody's alone, it was not read"),))
    if by_pid:
        return Join({rank: tuple(numbers) for rank, numbers in by_pid.items()})
    return _by_order(seen, where, engine, ranks, cards)


def _as_asked(seen: Sequence[Seen], where: str, asked: Mapping[int, tuple[str, ...]]) -> Join:
    found: dict[int, tuple[int, ...]] = {}
    problems: list[Problem] = []
    for rank, names in asked.items():
        numbers: list[int] = []
        for name in names:
            fitting = [one.number for one in seen if _is(one, name)]
            if len(fitting) == 1:
                numbers += fitting
            else:
                what = f"{len(fitting)} cards fit --gpus {rank}={name[:60]}"
                problems.append(Problem(where, what, "name its host too (HOST/GPU), or its UUID"))
        if len(numbers) == len(names):
            found[rank] = tuple(numbers)
    return Join(found, tuple(problems))


def _is(one: Seen, name: str) -> bool:
    host, slash, index = name.rpartition("/")
    if slash:
        return index == str(one.card.index) and host in {one.card.host, _short(one.card.host), _host(one.node)}
    return name in {str(one.card.index), one.card.uuid}


def _by_order(seen: Sequence[Seen], where: str, engine: str, ranks: int, cards: int | None) -> Join:
    nodes = list(dict.fromkeys((one.node, one.card.host) for one in seen))
    if len(nodes) > 1:
        order = [_host(part) for part in engine.split(",")]
        places = [_place(node, host, order) for node, host in nodes]
        known = [place for place in places if place is not None]
        if len(set(known)) < len(known):
            return Join({}, (Problem(where, "two pages of cards are of one node of the engine", "give each node's page once"),))
        several_pages = len({node for node, _ in nodes}) > 1
        if not known or (several_pages and len(known) < len(places)):
            hosts = ", ".join(host or node for node, host in nodes[:4])[:120]
            return Join({}, (Problem(where, f"cards of {len(nodes)} hosts ({hosts}), which {engine[:120]} does not name", _THEN),))
        rank_of_node = {node: place for node, place in zip(nodes, places, strict=True) if place is not None}
        seen = [one for one in seen if (one.node, one.card.host) in rank_of_node]  # other hosts' cards on one page are not the engine's
        seen = sorted(seen, key=lambda one: (rank_of_node[one.node, one.card.host], one.card.index))
    wanted = ranks if cards is None else cards
    if not ranks or wanted % ranks or len(seen) != wanted:
        counted = f"{len(seen)} cards for {ranks} ranks" + ("" if cards in {None, ranks} else f" of {cards} cards")
        return Join({}, (Problem(where, f"{counted}: which are whose is not known", _THEN),))
    each = wanted // ranks
    numbers = [one.number for one in seen]
    doubts = _strange(nodes[0], where, engine) if len(nodes) == 1 else ()
    return Join({rank: tuple(numbers[rank * each : (rank + 1) * each]) for rank in range(min(ranks, MAX_RANKS))}, doubts)


def _strange(node: tuple[str, str], where: str, engine: str) -> tuple[Problem, ...]:
    """What is to be said of the only page if neither its address nor its host is the engine's: it may be another node's, or have two names.
    The cards of the node that we run on are no page."""
    if "://" not in node[0] or _place(*node, [_host(part) for part in engine.split(",")]) is not None:
        return ()
    what = f"cards of {(node[1] or _host(node[0]))[:80]}, which {engine[:120]} does not name, were taken to be its node's"
    return (Problem(where, what, f"if they are another node's, give that of the engine; or {_THEN}"),)


def _place(node: str, host: str, order: list[str]) -> int | None:
    """Which node of the engine a page's or a label's host is; None for none of them."""
    label = [k for k, name in enumerate(order) if host and name in {host.lower(), _short(host)}]
    address = [k for k, name in enumerate(order) if name == _host(node)]
    return next(iter(label or address), None)


def _host(address: str) -> str:
    """The host in a URL or host:port."""
    try:
        return (urlsplit(address if "://" in address else f"//{address}").hostname or "").lower()
    except ValueError:
        return ""


def _short(host: str) -> str:
    return host.lower().partition(".")[0]
