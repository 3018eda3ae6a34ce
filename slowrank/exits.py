"""What slowrank's exit code says, and how several engines make one."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from collector.errors import SlowrankError


class Exit(IntEnum):
    """The exit codes, as `slowrank diagnose --help` documents them."""

    HEALTHY = 0
    FINDING = 1
    USAGE = 2
    INSUFFICIENT = 3
    UNREACHABLE = 4
    DEFECT = 70  # EX_SOFTWARE: slowrank itself broke; never to be read as a finding
    INTERRUPTED = 130  # 128 + SIGINT, as shells report it


# A finding is worth acting on even when another engine could not be read; silence about an engine is never health.
_WORST_FIRST = (Exit.FINDING, Exit.INSUFFICIENT, Exit.UNREACHABLE, Exit.HEALTHY)


class UnreachableError(SlowrankError):
    """No target gave a usable page."""


def worst(codes: Iterable[Exit]) -> Exit:
    """One code for several engines: 1 beats 3 beats 4 beats 0. Of no engine at all: insufficient evidence."""
    found = set(codes)
    return next((code for code in _WORST_FIRST if code in found), Exit.INSUFFICIENT)


def of_error(error: SlowrankError) -> Exit:
    """The code for an error that ends the command."""
    return Exit.UNREACHABLE if isinstance(error, UnreachableError) else Exit.USAGE
