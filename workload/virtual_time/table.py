"""The same figures as arrays, for whoever wants no pages."""

from __future__ import annotations

import numpy as np

from workload.config import ClusterConfig
from workload.virtual_time.columns import Column, key
from workload.virtual_time.hosts import Array
from workload.virtual_time.snapshots import Snapshot

FIELDS = (
    "running",
    "waiting",
    "uncached",
    "used",
    "total",
    "prefill_tokens",
    "prefill_us",
    "verified",
    "accepted",
    "accept_rate",
    "at",
)


class Table:
    """Keeps every scrape; a sink of `simulate`. Times are seconds from the start."""

    def __init__(self) -> None:
        self._metrics: list[Array] = []
        self._metrics_at: list[float] = []
        self._loads: list[list[tuple[float, ...]]] = []
        self._loads_at: list[float] = []
        self._places: dict[str, list[int]] = {}

    def open(self, config: ClusterConfig, columns: list[Column]) -> None:  # noqa: ARG002  # the columns know the ranks
        for place, column in enumerate(columns):
            self._places.setdefault(key(column), []).append(place)

    def loads(self, at: float, snapshots: list[Snapshot]) -> None:
        self._loads_at.append(at)
        self._loads.append([(*(float(getattr(s.known, name)) for name in FIELDS), *s.moments) for s in snapshots])

    def metrics(self, at: float, values: Array) -> None:
        self._metrics_at.append(at)
        self._metrics.append(values.copy())

    @property
    def metrics_times(self) -> Array:
        return np.array(self._metrics_at)

    @property
    def loads_times(self) -> Array:
        return np.array(self._loads_at)

    def counter(self, name: str) -> Array:
        """One series of `/metrics` by scrape and rank, such as `dp_attention_pairs_total{kind="scheduled"}`.

        Raises KeyError, with what there is, for any other name.
        """
        if name not in self._places:
            raise KeyError(f"no series {name!r}; there are {', '.join(self._places)}")
        return np.array(self._metrics)[:, self._places[name]]

    def load(self, field: str) -> Array:
        """One of `FIELDS` of the snapshots shown, by scrape and rank."""
        return np.array(self._loads)[:, :, FIELDS.index(field)]

    def moments(self) -> Array:
        """`decode_moments` of the snapshots shown, by scrape, rank and moment."""
        return np.array(self._loads)[:, :, len(FIELDS) :]
