"""What has to be changed on an engine before it shows a signal, and which change brings another with it. Pure text.

A change is the catalogue's own sentence (`Signal.enable`); its settings are the flags, variables and versions in that sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SETTING = re.compile(r"--[a-z][\w-]*|[A-Z][A-Z0-9_]+=[^\s,;]+|>= [\d.]+\d")


def settings(change: str) -> frozenset[str]:
    """The flags, environment variables and least versions that a sentence names."""
    return frozenset(_SETTING.findall(change))


def covers(change: str, other: str) -> bool:
    """Whether who makes `change` has made `other` too: it names every setting of it."""
    asked = settings(other)
    return change == other or bool(asked and asked <= settings(change))


def least(changes: Iterable[str]) -> tuple[str, ...]:
    """The fewest of `changes` that bring all of them, in alphabetical order."""
    distinct = sorted(set(changes))
    return tuple(
        one
        for k, one in enumerate(distinct)
        if not any(covers(other, one) and (not covers(one, other) or j < k) for j, other in enumerate(distinct) if j != k)
    )
