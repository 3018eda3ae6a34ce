"""Numbers and foreign text made fit for a person's terminal. Every text that slowrank prints goes through here."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from datetime import UTC, datetime

# Control (Cc), format incl. bidi overrides and zero-width (Cf), lone surrogates (Cs), line and paragraph separators (Zl, Zp): each of
# them can recolour, reorder or forge lines of a report when a model name or a URL holds it.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def safe(text: str, limit: int = 400) -> str:
    """One line of `text` with everything that a terminal would obey made visible (ESC becomes \\x1b), at most `limit` characters.

    Rich markup needs no escaping here because no report is ever printed through a markup parser.
    """
    shown = "".join(_visible(char) if unicodedata.category(char) in _UNSAFE else char for char in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def prose(text: str, limit: int = 4000) -> str:
    """Our own sentences, which may quote foreign text: line breaks of the source become spaces, the rest is made safe."""
    return safe(" ".join(text.split()), limit)


def wrap(text: str, width: int, indent: str = "", hang: str | None = None) -> list[str]:
    """`text` in lines of at most `width`; a word longer than that (a URL, a flag) is never cut, so that it can be pasted."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _visible(char: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if named:
        return named
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number(value: float) -> str:
    """Three significant digits below a hundred, whole numbers with thousands separators above."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def quantity(value: float | None, unit: str) -> str:
    """A value in the unit that a person would say it in: ms, %, thousands separators."""
    if value is None or math.isnan(value):
        return "not observed"
    if math.isinf(value):
        return "beyond measure"
    base, _, per = unit.partition("/")
    suffix = f"/{per}" if per else ""
    if base == "s":
        return _seconds(value) + suffix
    if base == "ratio":
        return percent(value) + suffix
    if base in {"1", ""}:
        return number(value) + suffix
    return f"{number(value)} {unit}"


def percent(share: float) -> str:
    """A share as a percentage: whole, or with one decimal where that would say too little."""
    return f"{share:.0%}" if abs(share) >= 0.0995 or share == 0 else f"{share:.1%}"


def _seconds(value: float) -> str:
    size = abs(value)
    if size == 0 or size >= 1:
        return f"{number(value)} s"
    return f"{number(value * 1e3)} ms" if size >= 1e-3 else f"{number(value * 1e6)} µs"


def utc(seconds: float) -> str:
    """A unix time for a person, always in UTC and saying so."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
