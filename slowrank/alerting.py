"""A test alert to receivers: it fires, it ends, and each answer is told."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from diagnose.alerts.notification import Notification, Status
from diagnose.alerts.receiver import Delivered, Receiver
from diagnose.alerts.sender import Sender
from diagnose.model import Class, Severity


def sample(severity: Severity, now: float) -> Notification:
    """An alert that says that it is a test. Each has its own key, so that no receiver takes it for one that it knows."""
    return Notification(
        incident=secrets.token_hex(8),
        version=1,
        status=Status.FIRING,
        engine="slowrank alert test",
        klass=Class.OUTSIDE,
        first_cause="test",
        first_ranks=(),
        severity=severity,
        formerly=(),
        cause="test",
        ranks=(),
        share=None,
        peak_share=None,
        confidence=1.0,
        summary="This is a test, nothing is wrong",
        update="",
        remedy="Nothing. If you see this, alerts arrive here.",
        runbook="slowrank alert test --help",
        link="",
        started=now,
        last_seen=now,
        fired=now,
    )


def play(receivers: Sequence[Receiver], severity: Severity, seconds: float, show: Callable[[str], None]) -> bool:
    """Send the alert to all, and its end after `seconds`; `show` gets a line per answer. Whether all were taken."""
    return asyncio.run(_play(receivers, severity, seconds, show))


async def _play(receivers: Sequence[Receiver], severity: Severity, seconds: float, show: Callable[[str], None]) -> bool:
    sender = Sender()
    try:
        fires = sample(severity, time.time())
        took = await _tell(sender, receivers, fires, show)
        await asyncio.sleep(seconds)
        ends = replace(fires, version=2, status=Status.RESOLVED, ended=time.time(), update="the test is over")
        return await _tell(sender, receivers, ends, show) and took
    finally:
        await sender.aclose()


async def _tell(sender: Sender, receivers: Sequence[Receiver], notice: Notification, show: Callable[[str], None]) -> bool:
    async def one(receiver: Receiver) -> bool:
        start = time.monotonic()
        answer = await sender.send(receiver.post(notice, time.time()))
        took = isinstance(answer, Delivered)
        said = f"taken in {(time.monotonic() - start) * 1e3:.0f} ms" if isinstance(answer, Delivered) else f"not taken: {answer.why}"
        show(f"{receiver.name:<14}{notice.status.value:<10}{said}")
        return took

    return all(await asyncio.gather(*(one(receiver) for receiver in receivers)))
