"""kill -9 between the decision and its delivery, and between the delivery and its note: nothing is lost, and repeats have the same key."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.alerts.courier import LONGEST_PAUSE, Courier
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.pagerduty import PagerDuty
from diagnose.alerts.receiver import Again, Delivered
from diagnose.alerts.routing import Route
from diagnose.alerts.secret import Secret
from diagnose.alerts.webhook import Webhook
from diagnose.incident import Policy, State

ROOT = Path(__file__).parents[2]

CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from conftest import Story
from diagnose.alerts.courier import Courier
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.routing import Route
from diagnose.alerts.webhook import Webhook
from diagnose.incident import Policy

desk, story = Desk(Ledger(Path({db!r})), [Route("w")], Policy()), Story()
story.page(desk)
if {ended}:
    story.end(desk)

async def send(post):
    print(post.headers["webhook-id"], flush=True)  # the receiver has it
    os.kill(os.getpid(), signal.SIGKILL)

if {delivering}:
    courier = Courier(desk, [Webhook.at("w", "http://h/x")], send)
    asyncio.run(courier.turn(courier.lines[0]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.cluster
@pytest.mark.beside(row=1)
@pytest.mark.parametrize("ended", [False, True], ids=["on", "over"])
@pytest.mark.parametrize("delivering", [False, True], ids=["before the post", "after the post"])
def test_kill_9(tmp_path, story, ended, delivering):
    """The next process sends the newest state once, under the key that the receiver may have seen, and goes on with the incident."""
    code = CHILD.format(here=str(Path(__file__).parent), db=str(tmp_path / "i.db"), ended=ended, delivering=delivering)
    died = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    seen = died.stdout.split()
    assert len(seen) == int(delivering)

    ledger, sent = Ledger(tmp_path / "i.db"), []  # the lock died with its holder
    desk = Desk(ledger, [Route("w")], Policy())

    async def send(post):
        sent.append(post.headers["webhook-id"])
        return Delivered()

    courier = Courier(desk, [Webhook.at("w", "http://h/x")], send)
    for _ in range(3):
        asyncio.run(courier.turn(courier.lines[0]))
    (incident,) = desk.incidents
    assert incident.state is (State.RESOLVED if ended else State.CONFIRMED)
    assert sent == [f"msg_{incident.id}_{2 if ended else 1}"]
    assert seen in ([], sent)
    ledger.close()


FLAPS = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from conftest import Clock, Story, bad, calm
from diagnose.alerts.courier import Courier
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.pagerduty import PagerDuty
from diagnose.alerts.receiver import Again, Delivered
from diagnose.alerts.routing import Route
from diagnose.alerts.secret import Secret
from diagnose.incident import Policy

desk, story, clock = Desk(Ledger(Path({db!r})), [Route("p")], Policy()), Story(), Clock()

async def send(post):
    if {up}:
        print(post.body.decode(), flush=True)
        return Delivered()
    return Again("down")

courier = Courier(desk, [PagerDuty.with_key("p", Secret("K"), "http://h/x")], send, steady=lambda: clock.steady)
for _ in range(1000):  # 20 s there, 130 s away: past the 120 s that resolve and, in time, past every quiet time
    story.tell(desk, bad(), 2)
    asyncio.run(courier.turn(courier.lines[0]))
    story.tell(desk, calm(), length=130.0)
    clock.pass_(150.0)
(incident,) = desk.incidents
assert incident.returns == 999, incident
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.cluster
@pytest.mark.beside(row=1)
@pytest.mark.parametrize("up", [True, False], ids=["delivered before", "down all the while"])
def test_one_page_for_a_thousand_flaps_an_outage_and_a_kill(tmp_path, story, clock, up):
    """A cause that comes and goes a thousand times, kill -9, and ten more minutes of outage: one trigger ever, then one resolve."""
    code = FLAPS.format(here=str(Path(__file__).parent), db=str(tmp_path / "i.db"), up=up)
    died = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    sent = [json.loads(line) for line in died.stdout.splitlines()]

    ledger = Ledger(tmp_path / "i.db")
    desk, down = Desk(ledger, [Route("p")], Policy()), True

    async def send(post):
        if down:
            return Again("down")
        sent.append(json.loads(post.body))
        return Delivered()

    courier = Courier(desk, [PagerDuty.with_key("p", Secret("K"), "http://h/x")], send, steady=lambda: clock.steady)

    def pass_(seconds):
        for _ in range(seconds):
            clock.pass_(1.0)
            asyncio.run(courier.turn(courier.lines[0]))

    pass_(600)
    down = False
    pass_(int(LONGEST_PAUSE) + 1)
    (incident,) = desk.incidents
    assert [(e["event_action"], e["dedup_key"]) for e in sent] == [("trigger", incident.id)]
    story.now = incident.judged
    story.end(desk)
    pass_(1)
    assert [(e["event_action"], e["dedup_key"]) for e in sent] == [("trigger", incident.id), ("resolve", incident.id)]
    ledger.close()
