"""A real Alertmanager: it receives, groups, notifies and resolves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from diagnose.alerts.alertmanager import Alertmanager
from diagnose.alerts.courier import Courier
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.routing import Route
from diagnose.alerts.sender import Sender
from diagnose.incident import Policy
from diagnose.model import Severity

CONFIG = """
route: {{receiver: hook, group_by: [engine], group_wait: 2s, group_interval: 2s, repeat_interval: 1h}}
receivers: [{{name: hook, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "i.db")
    yield made
    made.close()


@pytest.mark.cluster
@pytest.mark.beside(row=1)
def test_two_incidents_of_one_engine_are_one_page_and_end_in_one(tmp_path, serve, receiving, ledger, story):
    """Two alerts are grouped into one notification; told again they make none; a severity that rises makes one; both ends are told."""
    story.now = time.time() - 20.0  # confirmed now: Alertmanager does not wait for company of what is older

    async def play() -> list[Any]:
        async with receiving() as hook:
            (tmp_path / "a.yml").write_text(CONFIG.format(url=hook.url))
            arguments = [f"--config.file={tmp_path / 'a.yml'}", f"--storage.path={tmp_path / 'am'}", "--cluster.listen-address="]
            with serve("alertmanager", [*arguments, "--web.listen-address=127.0.0.1:0"]) as url:
                desk = Desk(ledger, [Route("am")], Policy())
                sender = Sender()
                later = [0.0]
                courier = Courier(desk, [Alertmanager.at("am", url)], sender.send, steady=lambda: time.monotonic() + later[0])
                (line,) = courier.lines

                async def turn():
                    while await courier.turn(line) == 0.0:
                        pass
                    assert line.problem == ""

                story.page(desk, severity=Severity.TICKET)
                story.page(desk, cause="stuck_rank", ranks=(1,))
                await turn()
                await until(lambda: len(hook.got) == 1)
                later[0] += 61.0
                await turn()
                assert await listed(url) == {("slowrank_slow_rank", "ticket"), ("slowrank_stuck_rank", "page")}
                story.end(desk)
                await turn()
                await until(lambda: hook.got[-1][1]["status"] == "resolved")
                assert await listed(url) == set()
                await sender.aclose()
                return [body for _, body in hook.got]

    first, *rest = asyncio.run(play())
    assert (first["version"], first["status"], first["groupLabels"]) == ("4", "firing", {"engine": "http://e:30000"})
    assert {a["labels"]["alertname"] for a in first["alerts"]} == {"slowrank_slow_rank", "slowrank_stuck_rank"}
    assert {a["annotations"]["lost_time_share"] for a in first["alerts"]} == {"0.200"}
    over = {(a["labels"]["alertname"], a["status"]) for body in rest for a in body["alerts"] if a["status"] == "resolved"}
    assert over == {("slowrank_slow_rank", "resolved"), ("slowrank_stuck_rank", "resolved")}
    assert len(rest) <= 2  # two, if Alertmanager's interval falls between the two posts


@pytest.mark.cluster
@pytest.mark.beside(row=1)
def test_a_severity_that_rises_ends_the_ticket_and_pages(tmp_path, serve, receiving, ledger, story, verdict):
    """Alertmanager holds one alert of the incident, under the new severity."""
    story.now = time.time() - 20.0  # confirmed now: Alertmanager does not wait for company of what is older

    async def play() -> None:
        async with receiving() as hook:
            (tmp_path / "a.yml").write_text(CONFIG.format(url=hook.url))
            arguments = [f"--config.file={tmp_path / 'a.yml'}", f"--storage.path={tmp_path / 'am'}", "--cluster.listen-address="]
            with serve("alertmanager", [*arguments, "--web.listen-address=127.0.0.1:0"]) as url:
                desk, sender = Desk(ledger, [Route("am")], Policy()), Sender()
                courier = Courier(desk, [Alertmanager.at("am", url)], sender.send)
                story.page(desk, severity=Severity.TICKET)
                await courier.turn(courier.lines[0])
                assert await listed(url) == {("slowrank_slow_rank", "ticket")}
                story.tell(desk, verdict(severity=Severity.PAGE))
                await courier.turn(courier.lines[0])
                assert courier.lines[0].problem == ""
                assert await listed(url) == {("slowrank_slow_rank", "page")}
                await sender.aclose()

    asyncio.run(play())


async def listed(url: str) -> set[tuple[str, str]]:
    """Name and severity of the alerts that it holds to be on."""
    async with httpx.AsyncClient() as client:
        alerts = (await client.get(f"{url}/api/v2/alerts", params={"active": "true"})).json()
    return {(a["labels"]["alertname"], a["labels"]["severity"]) for a in alerts}


async def until(true: Any, seconds: float = 30.0) -> None:
    """Wait for what the other process will do."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - no event crosses the processes
            await asyncio.sleep(0.05)
