"""A value that opens a door: it is never shown, not in a repr, a log line or an error."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from collector.errors import ConfigError

SHOWN = "**********"


class Secret:
    """A key, or an address that holds one. Only `reveal` gives it away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @classmethod
    def from_env(cls, name: str) -> Secret:
        """The environment variable's value. ConfigError when there is none."""
        value = os.environ.get(name, "").strip()
        if not value:
            raise ConfigError(f"{name}: there is no such environment variable, or it is empty; export {name} first")
        return cls(value)

    @classmethod
    def from_file(cls, path: Path) -> Secret:
        """The file's first line. ConfigError when it cannot be read or is empty."""
        try:
            lines = path.read_text(encoding="utf-8").split("\n", 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(f"{path}: the secret cannot be read ({reason}); name a readable file that holds it") from None
        if not lines[0].strip():
            raise ConfigError(f"{path}: the first line is empty; write the secret there")
        return cls(lines[0].strip())

    def reveal(self) -> str:
        """The value. Only for the request that needs it."""
        return self._value

    @property
    def fingerprint(self) -> str:
        """Tells two secrets apart without giving either away."""
        return hashlib.sha256(self._value.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return f"Secret({SHOWN})"

    __str__ = __repr__
