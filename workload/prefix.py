"""What one rank's prefix cache holds. Pure.

A request names the chain of segments that it begins with (a system prompt, a document, the turns of a conversation); a rank saves
the prefill of the leading ones that it has served before. Which rank that was is the router's doing: every rank has a cache of its
own, and what one of them holds is of no use to another.

As SGLang's radix tree it shares common beginnings and drops the least recently used leaf first. A segment is kept or dropped whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Segment(NamedTuple):
    """A named piece of text, in tokens. Segments of one name and two lengths are two segments."""

    name: str
    tokens: int


@dataclass(slots=True, eq=False)
class _Node:
    segment: Segment
    parent: _Node | None
    used: int = 0  # when, in touches of the whole cache
    children: dict[Segment, _Node] = field(default_factory=dict)


class PrefixCache:
    """A tree of segments, bounded to `capacity` tokens."""

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"a prefix cache of {capacity} tokens; 0 keeps nothing")
        self.capacity = capacity
        self.tokens = 0
        self._root = _Node(Segment("", 0), None)
        self._clock = itertools.count(1)

    def match(self, chain: Iterable[Segment]) -> int:
        """Tokens of the longest beginning of `chain` that is held; marks it as used."""
        now, node, tokens = next(self._clock), self._root, 0
        for segment in chain:
            found = node.children.get(segment)
            if found is None:
                break
            found.used = now
            node, tokens = found, tokens + segment.tokens
        return tokens

    def insert(self, chain: Iterable[Segment]) -> None:
        """Holds `chain`, or as much of its beginning as there is room for once older leaves are dropped."""
        now, node = next(self._clock), self._root
        for segment in chain:
            child = node.children.get(segment)
            if child is None:
                if not self._make_room(segment.tokens, now):
                    return
                child = node.children[segment] = _Node(segment, node)
                self.tokens += segment.tokens
            child.used = now
            node = child

    def _make_room(self, tokens: int, now: int) -> bool:
        while self.tokens + tokens > self.capacity:
            # those of this very insertion are in use; a scan is enough: a rank holds some hundred leaves
            old = [leaf for leaf in self._leaves() if leaf.used != now]
            if not old:
                return False
            leaf = min(old, key=lambda leaf: leaf.used)
            assert leaf.parent is not None
            del leaf.parent.children[leaf.segment]
            self.tokens -= leaf.segment.tokens
        return True

    def _leaves(self) -> Iterable[_Node]:
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack += node.children.values()
            else:
                yield node


@dataclass(frozen=True, slots=True)
class _Live:
    chain: tuple[Segment, ...]
    kept: Segment | None


class RankPrefixes:
    """A rank's cache through the lives of its requests: looked up when one arrives, filled by its first token and by its end."""

    def __init__(self, capacity: int) -> None:
        self.cache = PrefixCache(capacity)
        self._live: dict[int, _Live] = {}

    def arrived(self, rid: int, chain: Sequence[Segment], keeps: str, prompt: int, output: int) -> int:
        """Cached tokens of a request's prompt. What follows `chain`, answer included, is later kept under the name `keeps`."""
        if not chain and not keeps:
            return 0
        rest = prompt - sum(segment.tokens for segment in chain) + output
        self._live[rid] = _Live(tuple(chain), Segment(keeps, rest) if keeps else None)
        return min(self.cache.match(chain), prompt - 1)  # the last token is always computed: its output is the next token

    def progressed(self, first: Iterable[int], finished: Iterable[int]) -> None:
        """A prompt can be shared once it is prefilled, the answer once it is complete."""
        if not self._live:
            return
        for rid in first:
            if (live := self._live.get(rid)) is not None:
                self.cache.insert(live.chain)
        for rid in finished:
            if (live := self._live.pop(rid, None)) is not None and live.kept is not None:
                self.cache.insert((*live.chain, live.kept))

    def gone(self, rids: Iterable[int]) -> None:
        """Aborted: what they would have left behind never comes."""
        for rid in rids:
            self._live.pop(rid, None)
