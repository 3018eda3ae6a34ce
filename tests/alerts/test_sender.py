"""One real POST on loopback: what the other side may do, and what is never shown."""

from __future__ import annotations

import asyncio
import logging

import pytest

from diagnose.alerts.receiver import Again, Delivered, Gone, Post, Refused
from diagnose.alerts.secret import Secret
from diagnose.alerts.sender import HEARD, Sender


def send(receiving, step, timeout=5.0, body="ok", secrets=()):
    """The answer of a receiver that does `step`, and what it got."""

    async def play():
        async with receiving([step]) as server:
            server.body = body
            sender = Sender(timeout)
            post = Post(Secret(f"{server.url}/T0PSECRET"), {"content-type": "application/json"}, b'{"a": 1}', secrets)
            try:
                return await sender.send(post), server
            finally:
                await sender.aclose()

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [(200, {}, Delivered), (202, {}, Delivered), (400, {}, Refused), (410, {}, Gone), (500, {}, Again)],
)
def test_answers(receiving, status, headers, kind):
    """Each status as `judge` has it, with the reason that the body gives."""
    answer, server = send(receiving, (status, headers), body="because")
    assert type(answer) is kind
    assert kind is Delivered or answer.why.endswith(f"answered {status}: because")
    assert server.got[0][1] == {"a": 1}
    assert server.got[0][0]["user-agent"].startswith("slowrank/")


def test_retry_after_is_read_whatever_its_case(receiving):
    """From a 429."""
    answer, _ = send(receiving, (429, {"Retry-After": "33"}))
    assert isinstance(answer, Again)
    assert answer.after == 33.0


def test_a_redirect_is_not_followed(receiving):
    """An alert goes where it was configured to go, not where an answer sends it."""
    answer, server = send(receiving, (302, {"location": "http://127.0.0.1:9/"}))
    assert isinstance(answer, Again)
    assert len(server.got) == 1


@pytest.mark.parametrize(("step", "limit"), [("hang", 0.3), ("drop", 60.0)])
def test_a_receiver_that_drips_or_hangs_up_is_tried_again(receiving, step, limit):
    """The whole post has a time limit, not only each read; one that hangs up is not waited for."""
    answer, _ = send(receiving, step, timeout=limit)
    assert isinstance(answer, Again)
    assert (f"did not answer within {limit:g} s" in answer.why) is (step == "hang")


def test_nobody_there_is_tried_again():
    """With the host, without the path."""

    async def play():
        sender = Sender(5.0)
        try:
            return await sender.send(Post(Secret("http://127.0.0.1:9/T0PSECRET"), {}, b"{}"))
        finally:
            await sender.aclose()

    answer = asyncio.run(play())
    assert isinstance(answer, Again)
    assert answer.why.startswith("127.0.0.1:9 cannot be reached")
    assert "T0PSECRET" not in answer.why


def test_a_long_or_hostile_answer_is_cut_and_made_safe(receiving):
    """An answer is foreign text."""
    answer, _ = send(receiving, (500, {}), body="\x1b[31m" + "x" * 100_000)
    assert isinstance(answer, Again)
    assert "\x1b" not in answer.why
    assert len(answer.why) < HEARD + 60


def test_no_secret_in_answers_or_logs(receiving, caplog):
    """Not when the other side repeats a key, and not in what the HTTP library logs of each request."""
    with caplog.at_level(logging.DEBUG):
        answer, _ = send(receiving, (400, {}), body="no such key R0UT1NGKEY", secrets=(Secret("R0UT1NGKEY"),))
    assert isinstance(answer, Refused)
    assert answer.why.endswith("answered 400: no such key **********")
    assert "HTTP Request: POST http://127.0.0.1/**********" in caplog.text
    assert "T0PSECRET" not in caplog.text
    assert "R0UT1NGKEY" not in caplog.text
