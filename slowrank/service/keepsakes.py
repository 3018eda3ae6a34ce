"""The healthy past of engines on disk, so that a restart does not cost ten minutes without one. IO.

A folder beside the incident file, one file for each engine: zlib over MessagePack, written aside and renamed, so that a kill leaves the old
one. What cannot be read is told and left out; what cannot be written is told, and the service goes on without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from collector.engines.limits import MAX_RANKS
from collector.errors import CaptureError
from collector.model import Clock, Engine, Facts, FloatArray, Problem, Window
from collector.signals import CATALOGUE, Scope

FORMAT = "slowrank.past/1"

LONGEST_DOWN = 3600.0
"""s since a past was last in force after which it is left out: longer than any upgrade takes, short beside a day's waves of traffic."""

STAMP_EVERY = 60.0
"""s between two notes that a past is still in force, should it not change: a sixtieth of what they are held against."""

MAX_PACKED, MAX_PLAIN = 64 << 20, 512 << 20
"""Bytes. 64 ranks take 0.2 MB packed; 4,096 ranks, a hundred signals and 150 columns would be 490 MB plain."""


class _Kept(msgspec.Struct, frozen=True):
    format: str
    engine: str
    kind: str
    facts: Facts
    clock: Clock
    ranks: tuple[int, ...]
    edges: bytes  # float64, as `values`
    values: dict[str, bytes]
    scrapes: int
    frozen: dict[str, tuple[int, ...]]


def packed(window: Window) -> bytes:
    """A window as a file's content. Its problems are of then, and left out."""
    kept = _Kept(
        FORMAT,
        window.engine.id,
        window.engine.kind,
        window.engine.facts,
        window.engine.clock,
        window.ranks,
        _bytes(window.edges),
        {name: _bytes(values) for name, values in window.values.items()},
        window.scrapes,
        {name: tuple(ranks) for name, ranks in window.frozen.items()},
    )
    return zlib.compress(msgspec.msgpack.encode(kept), 1)


def unpacked(content: bytes) -> Window:
    """The window of a file's content. CaptureError for what is none; a signal that this version does not know is left out."""
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(content, MAX_PLAIN)
        if not unpacker.eof:
            raise CaptureError("it ends early, or is too long")
        kept = msgspec.msgpack.decode(plain, type=_Kept)
    except (zlib.error, msgspec.DecodeError) as error:  # a ValidationError is one
        raise CaptureError(f"it is damaged ({error})") from None
    if kept.format != FORMAT:
        raise CaptureError(f"its format is {kept.format[:40]!r}, not {FORMAT!r}")
    edges, ranks = _floats(kept.edges, "edges"), kept.ranks
    if len(edges) < 2 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
        raise CaptureError("its times do not rise")
    if len(set(ranks)) < len(ranks) or not all(0 <= rank < MAX_RANKS for rank in ranks):
        raise CaptureError("its ranks are none")
    values = {}
    for name, raw in kept.values.items():
        if name in CATALOGUE:
            rows = 1 if CATALOGUE[name].scope is Scope.ENGINE else len(ranks)
            table = _floats(raw, name)
            if len(table) != rows * (len(edges) - 1):
                raise CaptureError(f"{name} has {len(table)} values, and {rows * (len(edges) - 1)} were to be there")
            values[name] = table.reshape(rows, -1)
    return Window(Engine(kept.engine, kept.kind, kept.facts, kept.clock), edges, ranks, values, kept.scrapes, frozen=kept.frozen)


def _bytes(values: FloatArray) -> bytes:
    return np.ascontiguousarray(values, dtype="<f8").tobytes()


def _floats(raw: bytes, what: str) -> FloatArray:
    if len(raw) % 8:
        raise CaptureError(f"{what} is cut off")
    return np.frombuffer(raw, dtype="<f8").astype(np.float64)


class Keepsakes:
    """Owned by one event loop, but for `keep`, which may run in a thread, one at a time for each engine. `wall`: unix seconds."""

    def __init__(self, folder: Path, wall: Callable[[], float] = time.time) -> None:
        self._folder, self._wall = folder, wall
        self._troubles: dict[str, Problem] = {}  # by engine

    def problems(self) -> tuple[Problem, ...]:
        """What cannot be read or written."""
        return tuple(trouble for _, trouble in sorted(self._troubles.copy().items()))

    def find(self, engine: str) -> Window | None:
        """The past of an engine, if it was in force an hour ago at most."""
        path = self._path(engine)
        try:
            stamp = path.stat()
            if self._wall() - stamp.st_mtime > LONGEST_DOWN:
                return None
            if stamp.st_size > MAX_PACKED:
                raise CaptureError(f"it has {stamp.st_size:,} bytes, and {MAX_PACKED:,} are the most")
            window = unpacked(path.read_bytes())
            if window.engine.id != engine:
                raise CaptureError(f"it is of {window.engine.id[:80]!r}")
            if window.end > self._wall():
                raise CaptureError("it lies in the future: a clock was set back")
        except FileNotFoundError:
            return None
        except (OSError, CaptureError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._trouble(engine, f"the healthy past of {engine} cannot be read: {why}", "it is left out; ten healthy minutes make another")
            return None
        return window

    def keep(self, engine: str, window: Window) -> None:
        """Write a past, or say why it cannot be."""
        path = self._path(engine)
        aside = path.with_suffix(".new")
        try:
            self._folder.mkdir(exist_ok=True)
            aside.write_bytes(packed(window))
            aside.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink()
            what = f"the healthy past of {engine} cannot be written ({error.strerror})"
            self._trouble(engine, what, f"make room in {self._folder}, or after a restart there is none for ten minutes")
        else:
            self._troubles.pop(engine, None)

    def stamp(self, engine: str) -> None:
        """Its past is still in force, as it was."""
        with contextlib.suppress(OSError):  # keep() has told
            os.utime(self._path(engine), (self._wall(), self._wall()))

    def drop(self, engine: str) -> None:
        """It is watched no longer."""
        self._troubles.pop(engine, None)
        with contextlib.suppress(OSError):
            self._path(engine).unlink()

    def sweep(self) -> None:
        """Delete files that nobody came back to."""
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.past"):
                if self._wall() - path.stat().st_mtime > LONGEST_DOWN:
                    path.unlink()

    def _path(self, engine: str) -> Path:
        return self._folder / f"{hashlib.sha256(engine.encode('utf-8', 'replace')).hexdigest()[:24]}.past"

    def _trouble(self, engine: str, what: str, then: str) -> None:
        self._troubles[engine] = Problem("past", what, then)
