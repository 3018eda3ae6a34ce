"""Replies of the query API into series, fast: a matrix of raw samples is most of what is read. Pure.

Only the outer JSON is decoded into objects. The samples of a series, `[[1767225600.1,"12.5"],...]`, lose their brackets and quotes and are
read as one flat list of numbers: .13 us a sample where decoding pairs of number and string takes .4 (benchmarks/prometheus_read.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from collector.model import FloatArray

_numbers = msgspec.json.Decoder(list[float]).decode
_pairs = msgspec.json.Decoder(list[tuple[float, str]]).decode


class Series(NamedTuple):
    """One series with the samples of a range; infinity stands for one that is infinite, with either sign. NaN is no sample: that is how
    VictoriaMetrics gives the end of a series, which Prometheus leaves out."""

    labels: dict[str, str]  # with __name__
    times: FloatArray  # (n,) unix seconds, ascending
    values: FloatArray  # (n,)


class _Row(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw = msgspec.Raw(b"[]")  # absent where a series has native histograms only
    value: Any = None


class _Data(msgspec.Struct):
    result: list[_Row]
    resultType: str = ""  # noqa: N815 - as the API spells it


class _Labels(msgspec.Struct):
    status: str
    data: list[dict[str, str]] = []
    warnings: list[str] = []
    isPartial: bool = False  # noqa: N815


class _Matrix(msgspec.Struct):
    status: str
    data: _Data
    warnings: list[str] = []
    isPartial: bool = False  # noqa: N815


PARTIAL = "the server says that its answer is partial"


def labels(body: bytes) -> tuple[list[dict[str, str]], list[str]]:
    """Label sets of a reply of /api/v1/series, and the server's warnings. Raises msgspec.DecodeError or ValueError for anything else."""
    reply = msgspec.json.decode(body, type=_Labels)
    return reply.data, _warnings(reply)


def matrix(body: bytes) -> tuple[list[Series], list[str]]:
    """The series of a reply of /api/v1/query to a range of raw samples, and the server's warnings. Raises as `labels`."""
    reply = msgspec.json.decode(body, type=_Matrix)
    if reply.data.resultType != "matrix":
        raise ValueError(f"a {reply.data.resultType[:20]!r} where a matrix was expected")
    return [Series(row.metric, *_samples(bytes(row.values))) for row in reply.data.result], _warnings(reply)


def scalar(body: bytes) -> float | None:
    """The value of the only series of an instant query's reply; None where there is none. Raises as `labels`."""
    rows = msgspec.json.decode(body, type=_Matrix).data.result
    return float(rows[0].value[1]) if rows else None


def _warnings(reply: _Labels | _Matrix) -> list[str]:
    return [*reply.warnings, *([PARTIAL] if reply.isPartial and not reply.warnings else [])]


def _samples(raw: bytes) -> tuple[FloatArray, FloatArray]:
    try:
        flat = np.fromiter(_numbers(b"[" + raw.translate(None, b'[]"') + b"]"), np.float64)
    except msgspec.DecodeError:  # "NaN", "+Inf"
        pairs = _pairs(raw)
        flat = np.array([number for at, value in pairs for number in (at, float(value))])
    if len(flat) % 2:
        raise ValueError("samples that are no pairs of time and value")
    times, values = flat[0::2], flat[1::2]
    known = ~np.isnan(values)
    if not known.all():
        times, values = times[known], values[known]
    return times, np.where(np.isfinite(values), values, np.inf)
