"""Which of several sidecars watches an engine. Pure.

As Prometheus' relabelling action `hashmod` does it, so that a Prometheus that is sharded by the label `engine` keeps the same engines: the
last eight bytes of the MD5 of the engine's name, modulo the number of shards. The answer depends on nothing but that name and the number.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from collector.errors import ConfigError

MOST = 1000
"""Shards: at 100 engines each (docs/sidecar.md) a hundred times the largest fleet that was reported; more is a typing error."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The `number`th of `of`, counted from 0."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """`0/3`. ConfigError for anything else."""
        found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        number, of = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= of <= MOST:
            raise ConfigError(f"shard {text[:40]!r}: is no i/n with n from 1 to {MOST}; the first of three is 0/3")
        if number >= of:
            raise ConfigError(f"shard {text!r}: i goes from 0 to n - 1; the last of {of} is {of - 1}/{of}")
        return cls(number, of)

    def has(self, engine: str) -> bool:
        """Whether the engine of that name is watched here."""
        digest = hashlib.md5(engine.encode("utf-8", "replace"), usedforsecurity=False).digest()
        return int.from_bytes(digest[8:]) % self.of == self.number


ALL = Shard(0, 1)
"""One sidecar for all engines."""
