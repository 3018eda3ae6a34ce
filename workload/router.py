"""Which rank a request goes to: SGLang 0.5.23's data-parallel controller. Pure; time is an argument.

The load-aware methods steer by a budget: what each rank last published, plus what was sent to it since. A new snapshot of
a rank wipes out the increments of that rank, whether or not it has seen those requests yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workload.config import Method

REFRESH_SECONDS = 0.020  # SGLang reads the snapshots at most this often


@dataclass(frozen=True, slots=True)
class RankLoad:
    """A rank's published load: unix `timestamp` of the snapshot, running + waiting `requests`, used + queued `tokens`."""

    rank: int
    timestamp: float
    requests: int
    tokens: int


class Router:
    def __init__(self, method: Method, ranks: int) -> None:
        self._method = method
        self._ranks = ranks
        self._next = 0
        self._requests = [0] * ranks
        self._tokens = [0] * ranks
        self._seen = [0.0] * ranks
        self._refreshed = float("-inf")

    def due(self, now: float) -> bool:
        """True when `choose` would want a refresh first: a load-aware method, and none within the throttle."""
        return self._method != "round_robin" and now - self._refreshed >= REFRESH_SECONDS

    def refresh(self, now: float, loads: Iterable[RankLoad]) -> None:
        """Takes over every rank whose snapshot has another timestamp than the last one taken, older ones too."""
        self._refreshed = now
        for load in loads:
            if load.timestamp != self._seen[load.rank]:
                self._seen[load.rank] = load.timestamp
                self._requests[load.rank] = load.requests
                self._tokens[load.rank] = load.tokens

    def choose(self, tokens: int, pinned: int | None = None) -> int:
        """The rank for a prompt of `tokens`. A pinned request goes where it says and leaves the budget alone."""
        if pinned is not None:
            return pinned
        if self._method == "round_robin":
            rank = self._next
            self._next = (rank + 1) % self._ranks
            return rank
        # min() keeps the first of equals: ties go to the lowest rank
        if self._method == "total_requests":
            rank = min(range(self._ranks), key=lambda r: self._requests[r])
        else:
            rank = min(range(self._ranks), key=lambda r: (self._tokens[r], self._requests[r]))
            self._tokens[rank] += tokens
        self._requests[rank] += 1
        return rank
