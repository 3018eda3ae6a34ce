"""Which engine a request goes to: vLLM 0.32's front-end score, and the coordinator that feeds it. Pure; time is an argument.

Each front end has its own view: the coordinator's last message, what it itself has sent since, and its own unfinished requests,
which it takes for a fair sample of all front ends' requests. The score counts requests: neither their lengths nor the engine's
speed are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PUBLISH_SECONDS = 0.100  # between two messages of the coordinator while something changes; not configurable in vLLM
QUIET_SECONDS = 5.0  # and while nothing does
GATHER_SECONDS = 0.050  # lockstep engines: it waits at least this long, so that one step's numbers of all ranks are together
WAITING_WEIGHT = 6.0  # the published score's own two constants (vLLM pull request 49204)
KV_THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine reports: requests waiting and running, used share of its KV cache (0 to 1)."""

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0


class ScoreRouter:
    """One of `front_ends` front ends, the one numbered `index`."""

    def __init__(self, engines: int, front_ends: int = 1, index: int = 0) -> None:
        self._front_ends = front_ends
        self._start = engines * index // front_ends  # where its scan begins, so that idle engines are not all dealt from 0
        self._loads = [EngineLoad()] * engines
        self._bumps = [0] * engines
        self.unfinished = [0] * engines

    def update(self, loads: Sequence[EngineLoad]) -> None:
        """A message of the coordinator, about all engines: it replaces what was counted here since the last one."""
        self._loads = list(loads)
        self._bumps = [0] * len(self._loads)

    def score(self, engine: int) -> float:
        """The lower, the better."""
        load = self._loads[engine]
        waiting = load.waiting + self._bumps[engine]
        base = max(self._front_ends * self.unfinished[engine], waiting + load.running)
        return base + waiting * WAITING_WEIGHT * max(0.0, load.kv_usage - KV_THRESHOLD)

    def choose(self, pinned: int | None = None) -> int:
        """The engine for a request, which counts as unfinished until `finished`. Ties go round.

        `pinned` (header `X-data-parallel-rank`) wins. Raises ValueError for an engine that does not exist.
        """
        count = len(self._loads)
        if pinned is not None:
            if not 0 <= pinned < count:
                raise ValueError(f"X-data-parallel-rank {pinned}: there are engines 0 to {count - 1}")
            engine = pinned
        else:
            engine = min(((self._start + step) % count for step in range(count)), key=self.score)  # min() keeps the first of equals
            self._start = (self._start + 1) % count
            self._bumps[engine] += self._front_ends  # as if every front end had sent one there
        self.unfinished[engine] += 1
        return engine

    def finished(self, engine: int) -> None:
        """A request of this front end has ended on `engine`, or was aborted."""
        self.unfinished[engine] -= 1


class Coordinator:
    """Gathers the engines' reports and decides when the front ends hear of them."""

    def __init__(self, engines: int, *, lockstep: bool) -> None:
        self._loads = [EngineLoad()] * engines
        self._lockstep = lockstep
        self._changed: float | None = None  # when the first unpublished change came
        self._published = float("-inf")

    def report(self, now: float, engine: int, load: EngineLoad) -> None:
        """An engine's numbers; the same again are no change."""
        if load != self._loads[engine]:
            self._loads[engine] = load
            if self._changed is None:
                self._changed = now

    def publish(self, now: float) -> list[EngineLoad] | None:
        """The message to all front ends, if one is due at `now`."""
        if self._changed is None:
            if now - self._published < QUIET_SECONDS:
                return None
        else:
            gathered = now - self._changed >= GATHER_SECONDS if self._lockstep else True
            if not gathered or now - self._published < PUBLISH_SECONDS:
                return None
        self._published, self._changed = now, None
        return list(self._loads)
