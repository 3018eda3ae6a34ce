"""What was observed: pages as fetched, readings in canonical signals, and the window that a diagnosis reads. Frozen, no IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import wraps
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
_T = TypeVar("_T")


class Source(Enum):
    """One kind of page that we read: from an engine, of its log, or from the machines that it runs on."""

    SGLANG_LOADS = "sglang-loads"  # GET /v1/loads
    SGLANG_METRICS = "sglang-metrics"  # GET /metrics, and what is there is not vLLM's
    SGLANG_SERVER_INFO = "sglang-server-info"  # GET /server_info
    VLLM_METRICS = "vllm-metrics"  # GET /metrics, and what is there is vLLM's
    SGLANG_LOG = "sglang-log"  # lines of the schedulers' log
    VLLM_LOG = "vllm-log"  # lines of the front end's log
    SLOWRANK_METRICS = "slowrank-metrics"  # what slowrank itself exported, kept by a history server
    DCGM = "dcgm"  # a page of dcgm-exporter
    NVML = "nvml"  # what this node's NVIDIA driver says, as JSON of our own (collector/hardware/nvml.py)
    PROCFS = "procfs"  # what this node's /proc says of the rank processes, as JSON of our own (collector/hardware/procfs.py)


class Clock(StrEnum):
    """What makes an engine's ranks step together, which decides where a late rank shows. The values stand in reports."""

    EXCHANGE = "per-step gather"  # SGLang: metadata is exchanged before each forward, and the wait there is measured
    FORWARD = "all-reduce each forward"  # vLLM with experts: steps are equally long on all ranks, and no wait is measured
    NONE = "no common clock"  # vLLM without experts: each rank is an engine of its own
    UNKNOWN = "unknown"  # vLLM, and its pages do not tell which of the two


@dataclass(frozen=True, slots=True)
class Page:
    """One reply as it arrived, or the failure to get one. What a capture file holds and what an engine file reads."""

    engine: str  # the engine's id: the TARGET as the user gave it
    node: str  # base URL of the node that was asked
    source: Source
    arrived: float  # unix seconds at which the body was complete (or the attempt given up)
    took: float  # seconds from the request's start to `arrived`
    status: int  # HTTP status; 0 when there was no reply
    content_type: str
    body: bytes
    error: str | None = None  # plain words, when there was no usable reply
    late: float = 0.0  # seconds that the request began after it was due, as its reader had no time for it; not in captures


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with what was read, for a person: where, what was seen, what to do."""

    where: str  # URL, file, or source
    what: str  # what was seen, with the value
    then: str = ""  # the next step

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f"; {self.then}" if self.then else "")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a page says about the engine as a whole. None: not said on that page."""

    version: str | None = None
    model: str | None = None
    role: str | None = None  # unified, prefill, decode
    accelerator: str | None = None
    expected_ranks: int | None = None  # dp_size * attn_dp_size
    kv_bytes_per_token: float | None = None  # all layers of one token's KV cache on one rank
    clock: Clock | None = None
    cards: int | None = None  # accelerator cards of the whole engine

    def merged(self, newer: Facts) -> Facts:
        """These facts, overridden by every one that `newer` states."""
        stated = {name: value for name in self.__slots__ if (value := getattr(newer, name)) is not None}
        return replace(self, **stated)


@dataclass(frozen=True, slots=True)
class Reading:
    """One page in canonical terms: the raw value (cumulative for a counter) of each signal on each rank.

    `times[rank]` is the unix time, on our clock, at which that rank's values were true: for load snapshots the arrival less the
    snapshot's age, for a metrics page the arrival. Engine-wide signals use rank -1. A value that the page does not hold, or that is NaN,
    is absent here: absent, 0 and stale are three different things.
    """

    engine: str
    node: str
    source: Source
    arrived: float
    times: Mapping[int, float] = field(default_factory=dict)
    values: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    problems: tuple[Problem, ...] = ()
    speakers: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """Many readings of one source of one node at once, as a history server gives them back: n pages, oldest first, of R ranks.

    `values[signal]` is (n, R) and `whole[signal]`, of engine-wide signals, (n,); NaN where that page does not hold it. `times` is (n, R) as
    in a Reading, NaN where the rank is not on the page.
    """

    engine: str
    node: str
    source: Source
    arrived: FloatArray  # (n,) unix seconds, ascending
    ranks: tuple[int, ...]
    times: FloatArray
    values: Mapping[str, FloatArray]
    whole: Mapping[str, FloatArray] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    problems: tuple[Problem, ...] = ()
    speakers: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """One serving deployment whose DP ranks share a clock."""

    id: str
    kind: str  # "sglang", "vllm"
    facts: Facts = field(default_factory=Facts)
    clock: Clock = Clock.EXCHANGE


@dataclass(frozen=True, slots=True)
class Window:
    """The immutable table (signal x rank x time) that a diagnosis reads.

    `edges` are T+1 unix seconds; column t covers [edges[t], edges[t+1]). `values[signal]` is (R, T) in the order of `ranks`, or
    (1, T) for a signal of Scope.ENGINE: counters as rate per second, gauges as mean. NaN is "not observed". A signal that was
    never observed is not a key. `frozen[signal]` are the ranks whose pages hold the signal as a number that stands still while the engine
    works: an engine shows counters that it was not told to count. They are not observed either.
    """

    engine: Engine
    edges: FloatArray
    ranks: tuple[int, ...]
    values: Mapping[str, FloatArray]
    scrapes: int  # pages that were read successfully
    problems: tuple[Problem, ...] = ()
    frozen: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    derived: dict[object, object] = field(default_factory=dict, init=False, repr=False, compare=False)  # `once_a_window` keeps it

    @property
    def start(self) -> float:
        return float(self.edges[0])

    @property
    def end(self) -> float:
        return float(self.edges[-1])

    def has(self, *signals: str) -> bool:
        """True when each signal was observed at least once."""
        return _summary(self).seen.issuperset(signals)

    def has_any(self, *signals: str) -> bool:
        """True when one of the signals was observed at least once."""
        return not _summary(self).seen.isdisjoint(signals)

    def missing(self, *signals: str) -> tuple[str, ...]:
        """Those of `signals` that were never observed."""
        seen = _summary(self).seen
        return tuple(name for name in signals if name not in seen)

    def get(self, signal: str) -> FloatArray:
        """(R, T) values of a signal; all NaN when it was never observed."""
        found = self.values.get(signal)
        return np.full((len(self.ranks), len(self.edges) - 1), np.nan) if found is None else found

    def mean(self, signal: str) -> FloatArray:
        """(R,) time-weighted mean of a signal over the intervals in which it was observed; NaN for a rank never seen."""
        known = _summary(self).means.get(signal)
        return np.full(len(self.ranks), np.nan) if known is None else known

    def without(self, *signals: str) -> Window:
        """The same window as if these signals had not been there."""
        return replace(self, values={name: v for name, v in self.values.items() if name not in signals})


_P = ParamSpec("_P")


def once_a_window(derive: Callable[Concatenate[Window, _P], _T]) -> Callable[Concatenate[Window, _P], _T]:
    """A pure function of a window, and of what else can be a key, that several rules ask: computed once for each window, its arrays locked
    against writing."""

    @wraps(derive)
    def asked(window: Window, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        key = (derive, args, *kwargs.items()) if args or kwargs else derive
        try:
            return cast(_T, window.derived[key])
        except KeyError:
            pass
        found = window.derived[key] = derive(window, *args, **kwargs)
        if isinstance(found, np.ndarray):
            found.flags.writeable = False
        return found

    return asked


@dataclass(frozen=True, slots=True)
class _Summary:
    means: Mapping[str, FloatArray]  # (R,) each
    seen: frozenset[str]  # signals with a value


_AT_ONCE = 2_000_000
"""Values that are summed up together: 16 MB, all signals of 8 ranks over five minutes at 1 s."""


@once_a_window
def _summary(window: Window) -> _Summary:
    """`mean` and `has` of all signals: together, as one after the other they would be a fifth of a diagnosis."""
    shapes: dict[tuple[int, ...], list[str]] = {}
    for name, found in window.values.items():
        shapes.setdefault(found.shape, []).append(name)
    weights = window.edges[1:] - window.edges[:-1]
    means: dict[str, FloatArray] = {}
    seen: set[str] = set()
    for (rows, columns), names in shapes.items():
        size = max(1, _AT_ONCE // max(1, rows * columns))
        for part in (names[k : k + size] for k in range(0, len(names), size)):
            table = np.concatenate([window.values[name] for name in part])  # (signals x R, T)
            known = np.isfinite(table)
            if known.all() and columns:  # as often, and three times as fast
                mean = table @ weights / weights.sum()
            else:
                weight, total = known @ weights, np.where(known, table, 0.0) @ weights
                mean = np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), np.nan)
            mean.flags.writeable = False
            means.update(zip(part, mean.reshape(len(part), rows), strict=True))
            seen.update(name for name, some in zip(part, known.reshape(len(part), -1).any(axis=1).tolist(), strict=True) if some)
    return _Summary(means, frozenset(seen))
