"""Receivers in trouble on loopback: real posts, and a clock that the test moves. Nothing is lost, nothing doubled, nothing stuck."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections import Counter

import pytest

from diagnose.alerts.courier import LONGEST_PAUSE, Courier
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.routing import Route
from diagnose.alerts.sender import Sender
from diagnose.alerts.webhook import Webhook
from diagnose.incident import Policy

OUTAGE = 600
"""s, on the test's clock."""


class Town:
    """A desk and its courier, with a receiver that listens on `url` from `open` on, does what its script says, and may be at another."""

    def __init__(self, path, clock, server):
        self.clock, self.server = clock, server
        self.ledger = Ledger(path)
        self.desk = Desk(self.ledger, [Route("hook")], Policy())
        self.sender, self.hasty = Sender(60.0), Sender(0.3)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))  # nobody else gets the port, and nobody listens yet
        self._listener = None
        self.move(f"http://127.0.0.1:{self._socket.getsockname()[1]}/hook")

    def move(self, url):
        hook = Webhook.at("hook", url)
        self.courier = Courier(self.desk, [hook], self.send, steady=lambda: self.clock.steady, jitter=random.Random(3))

    async def send(self, post):
        """With little patience for a receiver that never ends its answer, and much for one that answers on a busy machine."""
        return await (self.hasty if self.server.script[0] == "hang" else self.sender).send(post)

    async def open(self):
        self._listener = await asyncio.start_server(self.server.serve, sock=self._socket)

    async def pass_(self, seconds):
        """Let the line do what is due, second by second. The tries that reached the receiver meanwhile: (status, key) each."""
        before = len(self.server.got)
        for _ in range(int(seconds) + 1):
            while await self.courier.turn(self.courier.lines[0]) == 0.0:
                pass
            self.clock.pass_(1.0)
        return [(body["status"], headers["webhook-id"]) for headers, body in self.server.got[before:]]

    async def close(self):
        await self.sender.aclose()
        await self.hasty.aclose()
        if self._listener is not None:
            self._listener.close()
        self._socket.close()
        self.ledger.close()


@pytest.fixture
def town(tmp_path, clock, receiving):
    """`async with town() as t`: nobody listens yet."""

    @contextlib.asynccontextmanager
    async def found():
        async with receiving() as server:
            made = Town(tmp_path / "i.db", clock, server)
            try:
                yield made
            finally:
                await made.close()

    return found


TROUBLES = {
    "nobody listens": None,
    "hangs up": "drop",
    "drips for ever": "hang",
    "500": (500, {}),
    "503 with Retry-After": (503, {"Retry-After": "45"}),
    "429 with Retry-After": (429, {"Retry-After": "120"}),
    "401": (401, {}),
    "redirect": (302, {"location": "http://127.0.0.1:9/"}),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_after_ten_minutes_of_trouble_each_state_arrives_once(town, story, trouble):
    """Told within the longest pause after the receiver is well: the page once, then its end once, under keys that the tries before had."""

    async def play():
        async with town() as t:
            step = TROUBLES[trouble]
            if step is not None:
                t.server.script = [step]
                await t.open()
            story.page(t.desk)
            tries = await t.pass_(OUTAGE)
            assert len(tries) <= 60
            assert bool(tries) is (step is not None)
            assert t.courier.problems(), "it is said"
            if step is None:
                await t.open()
            t.server.script = [(200, {})]
            page = await t.pass_(max(LONGEST_PAUSE, 120))
            assert [status for status, _ in page] == ["firing"]
            assert set(tries) <= set(page), "every try was the same message"
            assert t.courier.problems() == ()
            story.end(t.desk)
            end = await t.pass_(OUTAGE)
            assert [status for status, _ in end] == ["resolved"]
            assert not t.desk.outbox.pending("hook")

    asyncio.run(play())


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_ended_in_the_outage_is_told_as_ended_only(town, story, trouble):
    """Ten incidents come and go while the receiver is in trouble: afterwards ten ends, once each, and no page for what is over."""

    async def play():
        async with town() as t:
            step = TROUBLES[trouble]
            if step is not None:
                t.server.script = [step]
                await t.open()
            for n in range(10):
                story.page(t.desk, cause=f"cause{n}", ranks=(n,))
                await t.pass_(5)
            story.end(t.desk)
            await t.pass_(30)
            if step is None:
                await t.open()
            t.server.script = [(200, {})]
            told = await t.pass_(300)
            assert Counter(status for status, _ in told) == {"resolved": 10}
            assert len({key for _, key in told}) == 10

    asyncio.run(play())


def test_410_is_left_alone_until_it_is_configured_anew(town, story):
    """One try; well again it is left alone, as it said it is gone; at another address it hears what is on, and its end."""

    async def play():
        async with town() as t:
            await t.open()
            t.server.script = [(410, {})]
            story.page(t.desk)
            assert [status for status, _ in await t.pass_(OUTAGE)] == ["firing"]
            t.server.script = [(200, {})]
            assert await t.pass_(OUTAGE) == []
            assert "configure the address that took its place" in str(t.courier.problems()[0])
            t.move(t.server.url)
            assert [status for status, _ in await t.pass_(5)] == ["firing"]
            story.end(t.desk)
            assert [status for status, _ in await t.pass_(OUTAGE)] == ["resolved"]

    asyncio.run(play())


def test_a_slow_receiver_gets_each_state_once(town, story, receiving):
    """One that takes its time, within the limit, while the incident changes: the newest state arrives, and nothing twice."""

    async def play():
        async with town() as t:
            plain, slow = t.server.serve, asyncio.Event()

            async def serve(reader, writer):
                await asyncio.sleep(0.1)
                slow.set()
                await plain(reader, writer)

            t.server.serve = serve
            await t.open()
            story.page(t.desk)
            sending = asyncio.create_task(t.courier.turn(t.courier.lines[0]))
            await slow.wait()
            story.end(t.desk)  # while the page is on its way
            await sending
            await t.pass_(OUTAGE)
            assert [body["status"] for _, body in t.server.got] == ["firing", "resolved"]

    asyncio.run(play())


def test_a_clock_that_steps_doubles_and_loses_nothing(town, story):
    """The wall clock goes back by two hours before a page and forward by four before its end."""

    async def play():
        async with town() as t:
            await t.open()
            t.clock.wall -= 7200
            story.page(t.desk)
            assert [status for status, _ in await t.pass_(OUTAGE)] == ["firing"]
            t.clock.wall += 4 * 3600
            story.end(t.desk)
            assert [status for status, _ in await t.pass_(OUTAGE)] == ["resolved"]

    asyncio.run(play())
