"""Engines that come, go, change and break: who is watched, whose incidents end."""

from __future__ import annotations

import asyncio

import pytest

from slowrank.discovery.spec import EngineSpec
from slowrank.service import fleet as module
from slowrank.service.fleet import GONE_AFTER, Fleet


class Stub:
    """A watch that only is."""

    def __init__(self, spec, breaks=False):
        self.spec, self.breaks, self.ended, self.look = spec, breaks, False, None

    async def run(self):
        if self.breaks:
            self.breaks = False
            raise RuntimeError("a defect")
        try:
            await asyncio.sleep(3600)
        finally:
            self.ended = True


class Stage:
    """A fleet of stubs on a clock that does not run."""

    def __init__(self, breaks=False):
        self.now = 0.0
        self.made: list[Stub] = []
        self.left: list[str] = []
        self.fleet = Fleet(self._make, self.left.append, lambda: self.now)
        self._breaks = breaks

    def _make(self, spec):
        self.made.append(Stub(spec, self._breaks))
        return self.made[-1]

    async def list(self, *specs, known=(), sure=True, after=0.0):
        self.now += after
        await self.fleet.reconcile(specs, known, sure=sure)
        await asyncio.sleep(0)


A, B = EngineSpec("a", ("http://a:1",)), EngineSpec("b", ("http://b:1",))


def run(play) -> Stage:
    async def whole() -> Stage:
        stage = Stage()
        await play(stage)
        await stage.fleet.close()
        return stage

    return asyncio.run(whole())


def test_an_engine_that_is_listed_again_within_a_minute_was_never_away():
    """A list that loses an entry for a moment ends no incident and restarts no watch."""

    async def play(stage):
        await stage.list(A, B)
        await stage.list(B, after=5.0)
        await stage.list(A, B, after=GONE_AFTER - 10.0)
        await stage.list(B, after=5.0)
        await stage.list(B, after=GONE_AFTER - 1.0)
        assert [w.spec.name for w in stage.fleet.watches] == ["a", "b"]

    stage = run(play)
    assert len(stage.made) == 2
    assert stage.left == []


def test_an_engine_that_stays_away_is_let_go_once():
    """After a minute its watch ends and its incidents are told to."""

    async def play(stage):
        await stage.list(A, B)
        await stage.list(B, after=1.0)
        await stage.list(B, after=GONE_AFTER)
        await stage.list(B, after=GONE_AFTER)
        assert [w.spec.name for w in stage.fleet.watches] == ["b"]
        assert stage.made[0].ended

    assert run(play).left == ["a"]


def test_nothing_is_let_go_while_a_list_cannot_be_read():
    """Then what is missing may well be there."""

    async def play(stage):
        await stage.list(A)
        for _ in range(5):
            await stage.list(sure=False, after=GONE_AFTER)
        assert [w.spec.name for w in stage.fleet.watches] == ["a"]

    assert run(play).left == []


def test_incidents_of_an_engine_that_left_while_we_were_down_end_too():
    """The incident file knows an engine that no list has."""

    async def play(stage):
        await stage.list(A, known=["gone"])
        await stage.list(A, known=["gone"], after=GONE_AFTER)

    assert run(play).left == ["gone"]


def test_an_engine_that_is_configured_anew_is_watched_anew():
    """Another node under the same name is another watch; the same one is left alone, wherever it is listed now."""

    async def play(stage):
        await stage.list(A)
        await stage.list(EngineSpec("a", ("http://a:1",), origin="another file"))
        assert len(stage.made) == 1
        await stage.list(EngineSpec("a", ("http://a:2",)))
        assert stage.made[0].ended

    assert len(run(play).made) == 2


def test_a_watch_that_breaks_begins_anew_and_stops_no_other(monkeypatch, caplog):
    """Its defect is logged and counted."""
    monkeypatch.setattr(module, "AGAIN_AFTER", 0.01)

    async def whole():
        stage = Stage(breaks=True)
        await stage.list(A, B)
        await asyncio.sleep(0.1)
        alive = [not stub.ended and not stub.breaks for stub in stage.made]
        await stage.fleet.close()
        return stage, alive

    stage, alive = asyncio.run(whole())
    assert stage.fleet.breakages == {"a": 1, "b": 1}
    assert alive == [True, True]


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level("CRITICAL")
