"""The configured router, fed with what the ranks publish: what the front end asks before it sends a request."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Protocol

from workload.config import ClusterConfig
from workload.face.loads import LoadSnapshot
from workload.router import RankLoad, Router, SglangMethod
from workload.router_vllm import Coordinator, EngineLoad, ScoreRouter

Read = Callable[[], Iterable[LoadSnapshot]]


class Steering(Protocol):
    def choose(self, now: float, tokens: int, pinned: int | None) -> int:
        """The rank for a prompt of `tokens` at `now` (monotonic seconds)."""

    def ended(self, rank: int) -> None:
        """A request on `rank` has finished or was aborted."""


def steering(config: ClusterConfig, read: Read) -> Steering:
    """`read` gives every rank's last snapshot."""
    if config.method == "vllm_score":
        return _Score(config.ranks, read)
    return _Controller(config, config.method, read)


class _Controller:
    """SGLang's data-parallel controller."""

    def __init__(self, config: ClusterConfig, method: SglangMethod, read: Read) -> None:
        budget = config.budget
        self._router = Router(method, config.ranks, refresh_seconds=budget.refresh_seconds, skip_same=budget.skip_same)
        self._read = read
        self._by_room = method == "follow_bootstrap_room"
        self._rooms = random.Random(config.seed + 3)

    def choose(self, now: float, tokens: int, pinned: int | None) -> int:
        if pinned is None and self._router.due(now):
            self._router.refresh(now, (_rank_load(s) for s in self._read()))
        # the proxy before a split engine draws each request's room at random from 63 bits
        return self._router.choose(tokens, pinned, room=self._rooms.getrandbits(63) if self._by_room else None)

    def ended(self, rank: int) -> None:
        """The controller never hears of it but through the snapshots."""


class _Score:
    """One vLLM front end and its coordinator. The reports are the ranks' snapshots, which are rarer than vLLM's own, once a step."""

    def __init__(self, ranks: int, read: Read) -> None:
        self._router = ScoreRouter(ranks)
        self._coordinator = Coordinator(ranks, lockstep=True)
        self._read = read

    def choose(self, now: float, tokens: int, pinned: int | None) -> int:  # noqa: ARG002  # the score knows no lengths
        for s in self._read():
            self._coordinator.report(now, s.dp_rank, EngineLoad(s.num_waiting_reqs, s.num_running_reqs, s.token_usage))
        if (message := self._coordinator.publish(now)) is not None:
            self._router.update(message)
        return self._router.choose(pinned)

    def ended(self, rank: int) -> None:
        self._router.finished(rank)


def _rank_load(s: LoadSnapshot) -> RankLoad:
    return RankLoad(s.dp_rank, s.timestamp, s.num_running_reqs + s.num_waiting_reqs, s.num_total_tokens)
