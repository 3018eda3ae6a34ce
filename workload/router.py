"""Which rank a request goes to: SGLang 0.5.23's data-parallel controller. Pure; time is an argument.

The load-aware methods steer by a budget: what each rank last published, plus what was sent to it since. A new snapshot of
a rank wipes out the increments of that rank, whether or not it has seen those requests yet. Two habits soften that: the snapshots
are read at most every 20 ms, and one that was read before is not read again. Each can be switched off, to show what it is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

REFRESH_SECONDS = 0.020  # SGLang reads the snapshots at most this often

SglangMethod = Literal["round_robin", "total_requests", "total_tokens", "follow_bootstrap_room"]


@dataclass(frozen=True, slots=True)
class RankLoad:
    """A rank's published load: unix `timestamp` of the snapshot, running + waiting `requests`, used + queued `tokens`."""

    rank: int
    timestamp: float
    requests: int
    tokens: int


class Router:
    """`refresh_seconds` 0 reads the snapshots before every choice; without `skip_same` an unchanged one wipes out increments too."""

    def __init__(self, method: SglangMethod, ranks: int, *, refresh_seconds: float = REFRESH_SECONDS, skip_same: bool = True) -> None:
        self._method = method
        self._ranks = ranks
        self._refresh_seconds = refresh_seconds
        self._skip_same = skip_same
        self._next = 0
        self._next_probe = 0
        self._active = [True] * ranks
        self._requests = [0] * ranks
        self._tokens = [0] * ranks
        self._seen = [0.0] * ranks
        self._refreshed = float("-inf")

    def due(self, now: float) -> bool:
        """True when `choose` would want a refresh first: a load-aware method, and none within the throttle."""
        return self._method in ("total_requests", "total_tokens") and now - self._refreshed >= self._refresh_seconds

    def refresh(self, now: float, loads: Iterable[RankLoad]) -> None:
        """Takes over every rank whose snapshot has another timestamp than the last one taken, older ones too."""
        self._refreshed = now
        for load in loads:
            if load.timestamp != self._seen[load.rank] or not self._skip_same:
                self._seen[load.rank] = load.timestamp
                self._requests[load.rank] = load.requests
                self._tokens[load.rank] = load.tokens

    def set_active(self, rank: int, active: bool) -> None:
        """Round robin passes over inactive ranks. SGLang's other methods never look at that list, nor do these."""
        self._active[rank] = active

    def choose(self, tokens: int, pinned: int | None = None, room: int | None = None) -> int:
        """The rank for a prompt of `tokens`. A pinned request goes where it says and leaves the budget alone.

        `room` is the bootstrap room that `follow_bootstrap_room` needs. Raises ValueError for a rank that does not exist or a
        room that is missing, RuntimeError when round robin finds no active rank.
        """
        if pinned is not None:
            return self._existing(pinned)
        match self._method:
            case "follow_bootstrap_room":
                return self._by_room(room)
            case "round_robin":
                rank = self._turn(self._next)
                self._next = (rank + 1) % self._ranks
                return rank
            case "total_requests":
                # min() keeps the first of equals: ties go to the lowest rank
                rank = min(range(self._ranks), key=lambda r: self._requests[r])
            case "total_tokens":
                rank = min(range(self._ranks), key=lambda r: (self._tokens[r], self._requests[r]))
                self._tokens[rank] += tokens
        self._requests[rank] += 1
        return rank

    def choose_probe(self, room: int | None = None) -> int:
        """The rank for a health probe: in turn, apart from the requests' own turn, and the budget never hears of it."""
        if self._method == "follow_bootstrap_room":
            return self._by_room(room)
        rank = self._turn(self._next_probe)
        self._next_probe = (rank + 1) % self._ranks
        return rank

    def budget(self, rank: int) -> tuple[int, int]:
        """(requests, tokens) that the controller believes a rank to have."""
        return self._requests[rank], self._tokens[rank]

    def _turn(self, start: int) -> int:
        for step in range(self._ranks):
            rank = (start + step) % self._ranks
            if self._active[rank]:
                return rank
        raise RuntimeError(f"none of the {self._ranks} ranks is active; activate one before dispatching")

    def _by_room(self, room: int | None) -> int:
        if room is None:
            raise ValueError("follow_bootstrap_room needs a request's bootstrap room, and it has none; give it one or use round_robin")
        return room % self._ranks

    def _existing(self, rank: int) -> int:
        if not 0 <= rank < self._ranks:
            raise ValueError(f"routed_dp_rank {rank}: there are ranks 0 to {self._ranks - 1}")
        return rank
