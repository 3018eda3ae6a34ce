"""Requests over HTTP: which rank they are for, what is refused, and that nobody's is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from fastapi import FastAPI

from workload.face.generation import add_completions, add_generate
from workload.traffic import Shape


class Desk:
    """Notes what is sent and taken back; `answers` ends each request at once."""

    def __init__(self, *, answers: bool = True):
        self.answers, self.sent, self.aborted = answers, list[tuple[Shape, int | None]](), list[int]()

    def send(self, request: Shape, done: Callable[[], None], pinned: int | None = None) -> int:
        self.sent.append((request, pinned))
        if self.answers:
            asyncio.get_running_loop().call_soon(done)
        return len(self.sent) - 1

    def abort(self, rids: list[int]) -> None:
        self.aborted += rids


def ask(desk: Desk, path: str, body: object, headers: dict[str, str] | None = None) -> httpx.Response:
    async def go() -> httpx.Response:
        app = FastAPI()
        add_generate(app, desk, ranks=4, kv_tokens=1000)
        add_completions(app, desk, ranks=4, kv_tokens=1000)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://h") as client:
            return await client.post(path, json=body, headers=headers)

    return asyncio.run(go())


def generate(**changes: object) -> dict[str, object]:
    return {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1}} | changes


def test_a_pin_is_a_field_of_sglang_and_a_header_of_vllm() -> None:
    """Without one the router chooses; vLLM passes over a header that is no number."""
    desk = Desk()
    for pin in ({"routed_dp_rank": 3}, {}):
        assert ask(desk, "/generate", generate(**pin)).status_code == 200
    for headers in ({"X-data-parallel-rank": "2"}, {"X-data-parallel-rank": "x"}, {}):
        assert ask(desk, "/v1/completions", {"prompt": [5], "max_tokens": 1}, headers).status_code == 200
    assert [pinned for _, pinned in desk.sent] == [3, None, 2, None, None]
    assert desk.aborted == []


def test_the_same_tokens_share_a_prefix_and_others_do_not() -> None:
    """So that the rank's own cache decides what it holds."""
    desk = Desk()
    for tokens in ([5, 6], [5, 6], [6, 5]):
        ask(desk, "/generate", generate(input_ids=tokens))
    first, second, third = (request.prefix for request, _ in desk.sent)
    assert first == second != third


def test_a_stream_is_one_event_and_its_end() -> None:
    """Of a token that is there."""
    lines = ask(Desk(), "/generate", generate(stream=True)).text.split("\n\n")
    assert [line.startswith("data: ") for line in lines[:2]] == [True, True]
    assert lines[1] == "data: [DONE]"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (generate(routed_dp_rank=4), "routed_dp_rank 4 is out of range [0, 4)"),
        (generate(input_ids=[]), "0 prompt"),
        (generate(input_ids=[1] * 1000), "more than the 1000"),
        ({"text": "hello"}, "input_ids"),
    ],
)
def test_what_no_rank_could_do_is_refused_before_it_reaches_one(body: dict[str, object], words: str) -> None:
    """With 400, as the engines do."""
    desk = Desk()
    reply = ask(desk, "/generate", body)
    assert (reply.status_code, words in reply.text, desk.sent) == (400, True, [])


def test_a_request_whose_client_is_gone_is_taken_back() -> None:
    """Cancelled while it waits, as the server does with a stream that nobody reads."""
    desk = Desk(answers=False)

    async def go() -> None:
        app = FastAPI()
        add_generate(app, desk, ranks=4, kv_tokens=1000)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://h") as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.post("/generate", json=generate(stream=True)), 0.1)

    asyncio.run(go())
    assert desk.aborted == [0]
