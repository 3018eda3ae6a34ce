"""The truth about injected faults, one JSON object a line, in a file that only the caller knows of."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Label(msgspec.Struct, frozen=True):
    """`fault` acted on `rank` (None: on all) with `severity` from `start` to `end`, unix seconds.

    `ranks` are all that it made ill; empty when it is no rank's. A fault that rose is labelled with what it rose to.
    """

    fault: str
    rank: int | None
    severity: float
    start: float
    end: float
    ranks: tuple[int, ...] = ()


def append(path: Path, label: Label) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(label) + b"\n")


def read(path: Path) -> list[Label]:
    return [msgspec.json.decode(line, type=Label) for line in path.read_bytes().splitlines()] if path.exists() else []
