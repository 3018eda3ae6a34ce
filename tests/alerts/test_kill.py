"""kill -9 between the decision and its delivery, and between the delivery and its note: nothing is lost, and repeats have the same key."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.alerts.courier import Courier
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.receiver import Delivered
from diagnose.alerts.routing import Route
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
