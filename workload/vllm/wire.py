"""Messages between vLLM's engine cores and its front end, beside `Submit` and `Abort` of `workload.wire`."""

from __future__ import annotations

import msgspec


class Started(msgspec.Struct, frozen=True, array_like=True):
    """What comes with a request's first token: when it was queued and first scheduled (monotonic seconds), its cached prompt tokens."""

    rid: int
    queued: float
    scheduled: float
    cached: int


class Output(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """One step's output of an engine core, made at `at` (its monotonic clock). Dummy steps make none.

    The scheduler's numbers are those after the step: requests running and waiting, used share of the KV cache (0 to 1), and prompt
    tokens asked of and found in the prefix cache by requests admitted since the last output. `tokens`: the requests that got one;
    `started`, `finished` and `preempted` (how many times since their last output) are among them.
    """

    at: float
    running: int
    waiting: int
    kv_usage: float
    queries: int = 0
    hits: int = 0
    tokens: list[int] = []
    started: list[Started] = []
    finished: list[int] = []
    preempted: list[tuple[int, int]] = []


class Woken(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """To the coordinator: a request has come to a rank of a paused group, which has begun wave `wave`."""

    wave: int


class StartWave(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """From the coordinator, to every rank: begin wave `wave`, if you have not."""

    wave: int
