"""The text of a metrics page: what a line, a series and a number are, and what is no page at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

_SHOWN_BYTES = 60  # how much of what is no sample is shown

# Every quantifier is possessive: whatever a page holds, a match takes linear time.
_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_QUOTED = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LABELS = rb"\{[ \t]*+(?:(?:%b|%b)[ \t]*+(?:=[ \t]*+%b[ \t]*+)?+(?:,[ \t]*+|(?=\})))*+\}" % (_NAME, _QUOTED, _QUOTED)
_SERIES = rb"(?:%b(?:[ \t]*+%b|(?=[ \t]))|%b)" % (_NAME, _LABELS, _LABELS)
_EXEMPLAR = rb"[ \t]++#[ \t]*+%b[ \t]++([^ \t]++)(?:[ \t]++([^ \t]++))?+" % _LABELS

START_OF_LINE = re.compile(rb"[ \t]*+(#)?+(%b)?+([{ \t])?+" % _NAME)
_SERIES_PARTS = re.compile(rb"[ \t]*+(%b)?+[ \t]*+(%b)?+[ \t]*+" % (_NAME, _LABELS))
_LABEL = re.compile(rb"(%b|%b)[ \t]*+(?:=[ \t]*+(%b))?+" % (_NAME, _QUOTED, _QUOTED))
LINE = re.compile(rb"(%b)[ \t]*+([^ \t]++)(?:[ \t]++([^ \t#][^ \t]*+))?+(?:%b)?+" % (_SERIES, _EXEMPLAR))
_ESCAPE = re.compile(r'\\([\\n"])')
_JSON = re.compile(rb"\[|\{\s*+(?:\}|%b\s*+:)" % _QUOTED)
_BINARY = re.compile(rb'[^"#\n]*?[\x00-\x08\x0e-\x1b\x7f]')

_json_numbers = msgspec.json.Decoder(list[float]).decode


class Series(NamedTuple):
    name: str
    labels: Mapping[str, str]


def parse_series(text: bytes) -> Series | None:
    """A name with its labels, `name{label="value"}` or `{"name",label="value"}`; None if `text` is anything else."""
    match = _SERIES_PARTS.fullmatch(text)
    if match is None:
        return None
    try:
        name = (match[1] or b"").decode()
        labels: dict[str, str] = {}
        for key, value in _LABEL.findall(match[2] or b""):
            plain_key = _unquoted(key)
            if not value and key.startswith(b'"') and not name:
                name = plain_key
            elif not value or plain_key in labels or plain_key.startswith("__"):
                return None
            else:
                labels[plain_key] = _unquoted(value)
    except UnicodeDecodeError:
        return None
    return Series(name, MappingProxyType(labels)) if name else None


def _unquoted(text: bytes) -> str:
    if not text.startswith(b'"'):
        return text.decode()
    inner = text[1:-1].decode()
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], inner) if "\\" in inner else inner


def number(text: bytes) -> float | None:
    """The number, or None. Python reads 1_000 as a number; a metrics page may not say it."""
    try:
        return None if b"_" in text else float(text)
    except ValueError:
        return None


def numbers(texts: list[bytes]) -> list[float] | None:
    """All the numbers, or None if one is none. JSON's numbers mean here what they mean there, and are read in a fifth of the time."""
    joined = b",".join(texts)
    try:
        values = _json_numbers(b"[" + joined + b"]")
    except msgspec.DecodeError:  # NaN and +Inf among others
        values = []
    if len(values) == len(texts):
        return values
    try:
        return None if b"_" in joined else [float(text) for text in texts]
    except ValueError:
        return None


def not_a_page(body: bytes) -> str | None:
    """What a body is that cannot be a metrics page, how it begins, and what to do; None for one that can."""
    start = body[:1024].lstrip()
    if body.startswith(b"\x1f\x8b"):
        seen, then = "gzip", "ask with 'Accept-Encoding: identity', or decompress the body first"
    elif start.startswith(b"<"):
        seen, then = "HTML", "ask the engine's own port for /metrics: a proxy, a login page or another server answered"
    elif _JSON.match(start):
        seen, then = "JSON", "ask for /metrics: another path or another server answered"
    elif _BINARY.match(start):
        seen, then = "binary", "ask with 'Accept: text/plain;version=0.0.4' and 'Accept-Encoding: identity'"
    else:
        return None
    return f"the body is {seen}, not a metrics page: it begins {shown(start)}; {then}"


def shown(text: bytes) -> str:
    """The beginning of a line or page for a person: printable ASCII, whatever the page holds."""
    text = text.strip()
    escaped = text[:_SHOWN_BYTES].decode("latin-1").encode("unicode_escape").decode()
    return f"'{escaped}{'...' if len(text) > _SHOWN_BYTES else ''}'"
