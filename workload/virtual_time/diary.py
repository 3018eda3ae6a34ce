"""What a block of steps left behind, row by row, until `workload.virtual_time.ledger` adds it up."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from workload.virtual_time.hosts import Array, HostTimes

BLOCK = 512  # loops that are drawn, and later added up, together


class Extend(msgspec.Struct, frozen=True, gc=False):
    """An extend whose result came in with a loop."""

    row: int
    rank: int
    computed: int
    cached: int


class HandOver(msgspec.Struct, frozen=True, gc=False):
    """What a rank of a split engine tells of its queues between prefill and decode. Requests, but where it says tokens."""

    active_tokens: int
    ready_tokens: int
    bootstrap: int
    inflight: int
    prealloc: int
    transfer: int
    retracted: int
    gb_per_second: float  # of the last transfer, and milliseconds
    milliseconds: float
    waiting: int  # for the step, their KV being there
    ready: int


class Published(msgspec.Struct, frozen=True, gc=False):
    """A load snapshot as far as the scheduler knows it, written at the end of loop `row`; `at` in seconds."""

    row: int
    rank: int
    at: float
    running: int
    waiting: int
    uncached: int
    used: int
    total: int
    prefill_tokens: int
    prefill_us: int
    hit_rate: float
    verified: int = 0  # rows, by speculation, since the start
    accepted: int = 0  # drafts, since the start
    accept_rate: float = 0.0  # of drafts, in the last log window
    hand_over: HandOver | None = None  # of a split engine


@dataclass(slots=True)
class Diary:
    """One row per loop, from loop `first` on. `base`: the first rank's begin; `end`: the step's end on the cards, NaN where none was
    launched."""

    first: int
    hosts: HostTimes
    base: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # one number per rank for each row, as in the next two
    pairs: list[int] = field(default_factory=list)
    gained: list[int] = field(default_factory=list)  # under speculation only: tokens that each rank's decode makes
    graph: list[bool] = field(default_factory=list)
    level: list[float] = field(default_factory=list)  # balancedness
    extending: list[tuple[int, int]] = field(default_factory=list)  # (row, rank): launched an extend
    extends: list[Extend] = field(default_factory=list)
    answered: list[tuple[float, float]] = field(
        default_factory=list
    )  # (at, seconds): first tokens that clients got, and how long they waited
    lost: list[tuple[int, int, int]] = field(default_factory=list)  # (row, rank, tokens): made for requests that were aborted meanwhile
    dispatched: list[tuple[int, Array]] = field(default_factory=list)  # (row, copies by layer and card)
    published: list[Published] = field(default_factory=list)
    retracted: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # (row, rank, requests, input, output tokens)
    idle: list[tuple[int, float]] = field(default_factory=list)  # (row, seconds) of sleep with nothing to run
    working: list[tuple[int, int]] = field(default_factory=list)  # (row, rank) that had queued work in such a sleep

    @property
    def full(self) -> bool:
        return len(self.base) == BLOCK
