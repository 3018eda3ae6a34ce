"""Small files of /proc and /sys, which may vanish, be unreadable, or hold anything. IO."""

from __future__ import annotations

from pathlib import Path

MAX_BYTES = 1 << 16  # of one file of /proc: status has 1.5 KB


def text(path: Path, limit: int = MAX_BYTES) -> str:
    """A file's beginning; empty when it is not there, not ours to read, or its process has just ended."""
    try:
        with path.open("rb") as file:
            return file.read(limit).decode(errors="replace")
    except OSError:
        return ""


def number(word: str) -> int | None:
    """A whole number that is not negative; None for anything else."""
    word = word.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) < 20 else None


def stat_fields(folder: Path) -> list[str]:
    """Fields 3 and on of a process' `stat`: a command's name may hold anything, also blanks and brackets. Empty when it has ended."""
    return text(folder / "stat").rpartition(")")[2].split()
