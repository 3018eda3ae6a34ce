"""What a scheduler handles: a request, the batch that it goes into, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from workload.prefix import Segment
from workload.wire.requests import Submit


class Request(msgspec.Struct, eq=False):
    """`prompt` tokens, the first `cached` of them in the prefix cache (they cost no prefill, but count as context), `output` to make."""

    rid: int
    prompt: int
    cached: int
    output: int
    arrived: float = 0.0  # monotonic seconds
    scheduled: int = 0  # output tokens whose step has been scheduled
    filled: int = 0  # context tokens prefilled, the cached ones included; one that decodes has all of its context but the last token
    held: int = 0  # KV tokens taken
    aborted: bool = False
    prefix: tuple[Segment, ...] = ()  # what the prompt begins with; the rank's own cache then tells `cached`
    keeps: str = ""  # the name under which what follows, answer included, stays in that cache

    @classmethod
    def of(cls, letter: Submit, now: float) -> Request:
        """What a letter that is read at `now` asks for."""
        return cls(letter.rid, letter.prompt, letter.cached, letter.output, now, prefix=letter.prefix, keeps=letter.keeps)

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.output < 1:
            raise ValueError(f"a request of {self.prompt} prompt and {self.output} output tokens")
        self.cached = min(self.cached, self.prompt - 1)  # the last token is always computed: its output is the next token

    @property
    def context(self) -> int:
        """Tokens that the next step of this request attends to."""
        return self.prompt + self.scheduled

    @property
    def to_come(self) -> int:
        """Output tokens that no step has been scheduled for."""
        return self.output - self.scheduled


class Batch(msgspec.Struct, frozen=True, eq=False):
    """What one rank does in one step. `tokens` and `pairs` are what the metadata row reports (signals of dp_attention_*).

    A decode counts one token per row, whatever speculation verifies and accepts. A mixed batch is an extend with `rows` decode
    rows in it, which are part of `tokens` and `pairs`.
    """

    mode: Literal["extend", "mixed", "decode"]
    tokens: int
    pairs: int
    max_prefix: int  # context before the chunk that is prefilled, of the request that has most; a decode row's is not counted
    cached_tokens: int  # prefix tokens of the requests whose prefill starts here
    requests: tuple[Request, ...]  # those that get tokens out of this step
    gains: tuple[int, ...]  # how many each of them gets
    first: tuple[Request, ...] = ()  # of `requests`: those that get their first token
    last: tuple[Request, ...] = ()  # of `requests`: those that get their last one
    started: tuple[Request, ...] = ()  # those that run for the first time
    rows: int = 0  # decode rows
    row_pairs: int = 0  # pairs of the decode rows
    width: int = 1  # tokens that the card computes per decode row: those to verify, under speculation
    accepted: int = 0  # drafted tokens that were accepted

    @property
    def decoding(self) -> tuple[Request, ...]:
        """The decode rows."""
        return self.requests[len(self.requests) - self.rows :]

    @property
    def extends(self) -> bool:
        return self.mode != "decode"


class Result(msgspec.Struct):
    """What came out of a step."""

    first: list[int] = []
    finished: list[int] = []
    generated: int = 0  # tokens
    lost: int = 0  # beside those: made for requests that were aborted meanwhile


class Retracted(msgspec.Struct, frozen=True, gc=False):
    """Taken back for want of KV since last asked."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """A finished KV transfer: its bytes, and seconds from when it could have begun."""

    size: int
    seconds: float


@dataclass(slots=True)
class Turned:
    """What happened in the queues between prefill and decode since last asked. Lists of seconds hold one value per request."""

    first: list[int] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    handshakes: list[float] = field(default_factory=list)
    allocations: list[float] = field(default_factory=list)  # from the handshake's end to room for the KV
    stages: list[tuple[str, float]] = field(default_factory=list)  # as per_stage_req_latency_seconds names them

    @property
    def tells(self) -> bool:
        """Whether the front end waits to hear of it."""
        return bool(self.first or self.finished or self.failed)


@dataclass(frozen=True, slots=True)
class Queues:
    """Requests in the queues between prefill and decode; all zero on an engine that is not split."""

    bootstrap: int = 0
    inflight: int = 0
    prealloc: int = 0
    transfer: int = 0
    retracted: int = 0
    prealloc_ready: int = 0  # of `prealloc`: hands shaken, only room is missing
    prealloc_ready_tokens: int = 0
    early_tokens: int = 0  # KV held by requests that do not run yet

    @property
    def requests(self) -> int:
        return self.bootstrap + self.prealloc + self.transfer + self.retracted
