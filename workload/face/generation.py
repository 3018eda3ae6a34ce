"""Requests that come over HTTP: SGLang's `/generate` and vLLM's `/v1/completions`, whole or as a stream of one event.

They pass the same desk, router and schedulers as all traffic. There is no model behind them, so an answer is its length in tokens: an event
tells that all of them are there, at one token when the first one is. A client that goes away takes its request with it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from workload.crowd import Dispatcher
from workload.prefix import Segment
from workload.traffic import Shape


class Desk(Dispatcher, Protocol):
    """Who takes requests, and takes them back."""

    def abort(self, rids: list[int]) -> None: ...


class _Sampling(msgspec.Struct):
    max_new_tokens: int = 128  # SGLang's default


class Generate(msgspec.Struct):
    """What is read of a body of `/generate`."""

    input_ids: list[int]
    sampling_params: _Sampling = msgspec.field(default_factory=_Sampling)
    stream: bool = False
    routed_dp_rank: int | None = None


class Completion(msgspec.Struct):
    """What is read of a body of `/v1/completions`; the rank comes in a header."""

    prompt: list[int]
    max_tokens: int = 16  # vLLM's default
    stream: bool = False


class RefusedError(ValueError):
    """A request that the engine does not take."""


def add_generate(app: FastAPI, desk: Desk, ranks: int, kv_tokens: int) -> None:
    """SGLang's own endpoint. `kv_tokens` is what one rank can hold."""

    @app.post("/generate")
    async def generate(request: Request) -> Response:
        try:
            body = msgspec.json.decode(await request.body(), type=Generate)
            wanted = _shape(body.input_ids, body.sampling_params.max_new_tokens, kv_tokens)
            rank = _rank(body.routed_dp_rank, ranks, "routed_dp_rank")
        except (msgspec.MsgspecError, ValueError) as error:
            return _refusal(str(error))
        answer = {"text": "", "meta_info": {"prompt_tokens": wanted.prompt, "completion_tokens": wanted.output}}
        return await _answer(request, desk, wanted, rank, answer, stream=body.stream)


def add_completions(app: FastAPI, desk: Desk, ranks: int, kv_tokens: int) -> None:
    """The endpoint of vLLM that a rank can be asked of."""

    @app.post("/v1/completions")
    async def complete(request: Request) -> Response:
        try:
            body = msgspec.json.decode(await request.body(), type=Completion)
            wanted = _shape(body.prompt, body.max_tokens, kv_tokens)
            rank = _rank(_number(request.headers.get("x-data-parallel-rank", "")), ranks, "data_parallel_rank")
        except (msgspec.MsgspecError, ValueError) as error:
            return _refusal(str(error))
        usage = {"prompt_tokens": wanted.prompt, "completion_tokens": wanted.output}
        answer = {"object": "text_completion", "choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": usage}
        return await _answer(request, desk, wanted, rank, answer, stream=body.stream)


def _shape(tokens: list[int], output: int, kv_tokens: int) -> Shape:
    """The request. The same tokens again find their own cache, on a rank that has them."""
    if not tokens or output < 1:
        raise RefusedError(f"{len(tokens)} prompt and {output} output tokens; both must be at least 1")
    if len(tokens) + output > kv_tokens:
        raise RefusedError(f"{len(tokens)} + {output} tokens are more than the {kv_tokens} that a rank can hold")
    name = hashlib.sha256(msgspec.msgpack.encode(tokens)).hexdigest()[:16]
    return Shape(len(tokens), 0, output, (Segment(f"asked-{name}", len(tokens)),))


def _number(header: str) -> int | None:
    """vLLM 0.32 passes over a header that is no number: such a request was answered with 200."""
    return int(header) if header.isascii() and header.isdigit() else None


def _rank(rank: int | None, ranks: int, field: str) -> int | None:
    if rank is not None and not 0 <= rank < ranks:
        raise RefusedError(f"{field} {rank} is out of range [0, {ranks})")
    return rank


def _refusal(why: str) -> Response:
    return Response(
        msgspec.json.encode({"error": {"message": why, "type": "BadRequestError", "code": 400}}), 400, media_type="application/json"
    )


async def _answer(request: Request, desk: Desk, wanted: Shape, rank: int | None, answer: Mapping[str, object], *, stream: bool) -> Response:
    if stream:
        return StreamingResponse(_events(desk, wanted, rank, answer), media_type="text/event-stream")
    async with _asked(desk, wanted, rank) as done:
        while not done.is_set():
            with_limit = asyncio.create_task(done.wait())
            await asyncio.wait({with_limit}, timeout=_LOOK_SECONDS)
            with_limit.cancel()
            if not done.is_set() and await request.is_disconnected():
                return Response(status_code=499)
    return Response(msgspec.json.encode(answer), media_type="application/json")


async def _events(desk: Desk, wanted: Shape, rank: int | None, answer: Mapping[str, object]) -> AsyncIterator[bytes]:
    """Ends by itself, or with the client: the server then cancels it."""
    async with _asked(desk, wanted, rank) as done:
        await done.wait()
    yield b"data: " + msgspec.json.encode(answer) + b"\n\n"
    yield b"data: [DONE]\n\n"


@asynccontextmanager
async def _asked(desk: Desk, wanted: Shape, rank: int | None) -> AsyncIterator[asyncio.Event]:
    """A request on its way, and the event of its end; taken back if that has not come when this is left."""
    done = asyncio.Event()
    rid = desk.send(wanted, done.set, rank)
    try:
        yield done
    finally:
        if not done.is_set():
            desk.abort([rid])


_LOOK_SECONDS = 0.2  # between two looks whether the client of a request without a stream is still there
