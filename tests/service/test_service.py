"""The whole service over real HTTP on loopback: hostile targets, a full configuration reloaded, its end. No assertion is on speed."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from collector.errors import ConfigError
from slowrank.service.service import Service

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
PAGE = (CAPTURES / "tp4-dp2-ep4.prom").read_bytes()
LOADS = json.dumps(json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]).encode()
PATIENCE = 90.0

FAST = (
    '[service]\nincidents = "s.db"\n[scrape]\nloads = "200ms"\nmetrics = "200ms"\ntimeout = "3s"\nmax_page_bytes = 4000000\nbudget = 1.0\n'
)
FAST += '[diagnosis]\nevery = "500ms"\nwindow = "2s"\n'


def good(path: str):
    return 200, LOADS if path == "/v1/loads" else PAGE, {}


HOSTILE = {
    "hangs": None,
    "garbage": (200, bytes(range(256)) * 100, {}),
    "bomb": (200, gzip.compress(b"x" * (64 << 20)), {"content-encoding": "gzip"}),
    "endless": (200, b"sglang:x 1\n" * 2_000_000, {}),
    "100k": (200, b"".join(b'sglang:num_running_reqs{dp_rank="%d"} 1\n' % k for k in range(100_000)), {}),
    "html": (200, b"<html>login</html>", {}),
    "json": (200, b"[" * 100_000, {}),
    "500": (500, b"", {}),
}
"""Made once: what a server needs to make them must not hold up the loop that it shares with the service here."""


SAID = {
    "hangs": "no complete answer within 3 s",
    "garbage": "sglang-",
    "bomb": "more than 4000000 bytes",
    "endless": "more than 4000000 bytes",
    "100k": "sglang-",
    "html": "HTML instead of the page",
    "json": "sglang-",
    "500": "HTTP 500",
}
"""What the window of each says in the end."""


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[Service]:
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], bool]) -> None:
    """Wait for a state that nothing announces."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def test_hostile_targets_do_not_keep_the_others_from_being_judged(plan, serving):
    """Half of the targets hang, send garbage, bombs, endless or huge pages: the good ones are judged, each bad one says what is wrong."""

    async def play() -> None:
        async with contextlib.AsyncExitStack() as stack:
            urls = {name: (await stack.enter_async_context(serving(itertools.repeat(answer)))).url for name, answer in HOSTILE.items()}
            urls |= {f"good{k}": (await stack.enter_async_context(serving(good))).url for k in range(len(HOSTILE))}
            tables = "".join(f'[[engines]]\nname = "{name}"\nnodes = ["{url}"]\n' for name, url in urls.items())
            calmer = FAST.replace("200ms", "500ms").replace('window = "2s"', 'window = "5s"')  # 16 servers share this one loop
            service = await stack.enter_async_context(running(Service(plan(calmer + tables))))

            def said(name: str) -> str:
                watch = service.fleet.find(name)
                return "" if watch is None or watch.look is None else " | ".join(map(str, watch.look.window.problems))

            judged: set[str] = set()  # one by one: windows of 2 s may be empty for a moment while the loop has garbage to read

            def all_judged() -> bool:
                judged.update(w.spec.name for w in service.fleet.watches if w.look and w.look.window.ranks == (0, 1) and w.diagnoses >= 2)
                return judged >= {f"good{k}" for k in range(len(HOSTILE))}

            await until(lambda: all(word in said(name) for name, word in SAID.items()))
            await until(all_judged)
            assert not service.fleet.breakages

    asyncio.run(play())


def test_a_reload_takes_the_new_one_and_refuses_a_bad_one(plan, tmp_path, serving):
    """A bad file changes nothing and is told; a good one adds and removes engines, whose incidents are kept."""

    async def play() -> None:
        async with (
            serving(good) as one,
            serving(good) as two,
            running(Service(plan(FAST + f'[[engines]]\nnodes = ["{one.url}"]\n'))) as service,
        ):
            await until(lambda: bool(service.fleet.watches))
            first = service.fleet.watches[0]
            assert not await service.reload(lambda: plan("[service]\nlisen = 'x'\n"))
            assert service.reloads == {"ok": 0, "refused": 1}
            assert "did you mean 'listen'" in str(service.problems()[0])
            assert await service.reload(lambda: plan(FAST + "".join(f'[[engines]]\nnodes = ["{url}"]\n' for url in (one.url, two.url))))
            await until(lambda: len(service.fleet.watches) == 2)
            assert service.fleet.find(one.url) is first, "an engine that did not change is left alone"
            assert service.problems() == ()

    asyncio.run(play())


def test_receivers_can_be_changed_while_incidents_are_on(plan, serving, tell_story):
    """The new receiver hears of what is on, from the same file."""
    hooks: list[str] = []

    def hook(path: str):
        hooks.append(path)
        return 200, b"ok", {}

    async def play(service: Service) -> None:
        async with serving(hook) as server, running(service):
            table = f'[[alerts.webhook]]\nurl = "{server.url}/new"\n'
            assert await service.reload(lambda: plan(FAST + '[[engines]]\nname = "story"\nnodes = ["127.0.0.1:9"]\n' + table))
            await until(lambda: bool(hooks))

    service = Service(plan(FAST + '[[engines]]\nname = "story"\nnodes = ["127.0.0.1:9"]\n'))
    tell_story(service, "story", {})
    asyncio.run(play(service))
    assert set(hooks) == {"/new"}


def test_a_list_of_files_is_followed_while_it_runs(plan, tmp_path, serving):
    """Targets come and their labels go with them."""
    targets = tmp_path / "targets.json"
    targets.write_text("[]")

    async def play() -> None:
        async with serving(good) as one, running(Service(plan(FAST + '[[discovery.files]]\npaths = ["targets.json"]\n'))) as service:
            await until(lambda: service.unready() is None)
            assert not service.fleet.watches
            targets.write_text(json.dumps([{"targets": [one.url.removeprefix("http://")], "labels": {"zone": "z"}}]))
            await until(lambda: bool(service.fleet.watches))
            assert service.fleet.watches[0].spec.labels == (("zone", "z"),)

    asyncio.run(play())


def test_the_incident_file_is_free_when_the_service_has_ended(plan, serving):
    """Two services never share it; one after the other may."""
    text = FAST + '[[engines]]\nnodes = ["127.0.0.1:9"]\n'

    async def play() -> None:
        async with running(Service(plan(text))) as service:
            await until(lambda: bool(service.fleet.watches))
            with pytest.raises(ConfigError, match="another slowrank has this incident file open"):
                Service(plan(text))
        async with running(Service(plan(text))):
            await asyncio.sleep(0)

    asyncio.run(play())
