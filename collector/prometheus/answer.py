"""What a Prometheus server answers, into series of numbers. Pure.

The values are strings in JSON ("NaN" and "+Inf" have no JSON number); msgspec reads them as floats without a Python string for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collector.errors import SlowrankError
from collector.model import FloatArray

MAX_TOLD = 300
"""Characters of a server's own words that a message repeats."""


class PrometheusError(SlowrankError):
    """A server that cannot be asked, or a query that it refuses. The message names the server, what was seen and the next step."""


@dataclass(frozen=True, slots=True)
class Series:
    """Raw samples of one series, in order of time."""

    name: str
    labels: Mapping[str, str]  # all but the name: the page's and those that the scrape added
    times: npt.NDArray[np.int64]  # (n,) unix milliseconds, rising
    values: FloatArray  # (n,)


class _Row(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, float]] = []
    value: tuple[float, float] | None = None


class _WordyRow(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct):
    resultType: str = ""  # noqa: N815 - the server's word
    result: list[_Row] = []


class _WordyData(msgspec.Struct):
    result: list[_WordyRow] = []


class _Answer(msgspec.Struct):
    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    warnings: list[str] = []
    isPartial: bool = False  # noqa: N815 - VictoriaMetrics: a node of its cluster did not answer


class _WordyAnswer(msgspec.Struct):
    data: _WordyData = msgspec.field(default_factory=_WordyData)


class _Refusal(msgspec.Struct):
    errorType: str = ""  # noqa: N815 - the server's word
    error: str = ""


_plain = msgspec.json.Decoder(_Answer, strict=False)
_wordy = msgspec.json.Decoder(_WordyAnswer)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: series, and what the server warned of."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()


def read(url: str, body: bytes) -> Answer:
    """The series of an answer with status 200. PrometheusError for any other body: HTML, truncated JSON, another shape."""
    start = body[:512].lstrip()
    if start.startswith(b"<"):
        raise PrometheusError(f"{url}: HTML instead of an answer, from a proxy or a login page; give the server's own URL, or a token")
    try:
        answer = _plain.decode(body)
        rows: list[Any] = list(answer.data.result)
    except (msgspec.DecodeError, ValueError, RecursionError):
        answer, rows = _odd(url, body)
    if answer.status != "success":
        raise PrometheusError(f"{url}: the answer's status is {told(answer.status)!r}; look at the server's log")
    if answer.data.resultType not in {"matrix", "vector"}:
        raise PrometheusError(f"{url}: a result of type {told(answer.data.resultType)!r}; is this the API of Prometheus?")
    warnings = tuple(map(told, answer.warnings[:3]))
    if answer.isPartial:
        warnings = (*warnings, "the answer is partial: a part of the storage did not answer")
    return Answer(tuple(_series(row) for row in rows), warnings)


def _odd(url: str, body: bytes) -> tuple[_Answer, list[Any]]:
    """An answer that holds an infinity, which only Python's float reads; it is decoded the slow way."""
    try:
        head = msgspec.json.decode(body, type=_Head)
        return _Answer(head.status, _Data(head.data.resultType), head.warnings, head.isPartial), list(_wordy.decode(body).data.result)
    except (msgspec.DecodeError, ValueError, RecursionError):
        seen = "JSON that is cut off" if body.lstrip().startswith(b"{") and not body.rstrip().endswith(b"}") else "no answer of Prometheus"
        then = "ask again, and look at the proxy between" if seen.startswith("JSON") else "give the base URL of a Prometheus HTTP API"
        raise PrometheusError(f"{url}: {seen}, {len(body)} bytes that begin {told(body[:60].decode(errors='replace'))!r}; {then}") from None


class _HeadData(msgspec.Struct):
    resultType: str = ""  # noqa: N815 - the server's word


class _Head(msgspec.Struct):
    status: str
    data: _HeadData = msgspec.field(default_factory=_HeadData)
    warnings: list[str] = []
    isPartial: bool = False  # noqa: N815 - VictoriaMetrics' word


def _series(row: _Row | _WordyRow) -> Series:
    pairs: list[Any] = row.values or ([row.value] if row.value is not None else [])
    flat = np.fromiter(map(float, chain.from_iterable(pairs)), np.float64, 2 * len(pairs))
    times = np.rint(flat[::2] * 1000.0).astype(np.int64)
    labels = {name: value for name, value in row.metric.items() if name != "__name__"}
    return Series(row.metric.get("__name__", ""), labels, times, flat[1::2].copy())


def refusal(body: bytes) -> tuple[str, str]:
    """(kind of error, its words) of an answer that is no success; empty where it does not say."""
    try:
        found = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "", ""
    return told(found.errorType), told(found.error)


def told(text: str) -> str:
    """A server's words, safe in a message: printable, on one line and short."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= MAX_TOLD else plain[:MAX_TOLD] + "..."


def joined(parts: list[Series]) -> Series:
    """One series out of its parts in order of time; a sample that two of them hold, on their common edge, is there once."""
    if len(parts) == 1:
        return parts[0]
    times, first = np.unique(np.concatenate([part.times for part in parts]), return_index=True)
    values = np.concatenate([part.values for part in parts])[first]
    return Series(parts[0].name, parts[0].labels, times, values)
