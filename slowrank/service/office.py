"""Incidents and alerts of the running service: the incident file, the desk that keeps it, the courier that delivers. IO.

A reload that changes who is told makes a new desk on the same file: what is owed is read back, so nothing is lost and nothing told twice
but what was in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from collector.model import Problem
from diagnose.alerts.courier import Courier, LineStatus
from diagnose.alerts.desk import Desk
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.receiver import Receiver
from diagnose.alerts.routing import Route
from diagnose.alerts.sender import Sender
from diagnose.incident import Incident, Policy, State
from diagnose.model import EngineDiagnosis, Severity

Labels = Callable[[str], tuple[tuple[str, str], ...]]


class Office:
    """Owned by one event loop."""

    def __init__(
        self, file: Path, receivers: Sequence[Receiver], routes: Sequence[Route], external_url: str, labels: Labels = lambda _: ()
    ) -> None:
        """`labels`: an engine's own, by its name. ConfigError or sqlite3.Error when the file cannot be used."""
        self.file = file
        self._labels = labels
        self._ledger = Ledger(file)
        self._sender = Sender()
        self._task: asyncio.Task[None] | None = None
        self._asked = (tuple(receivers), tuple(routes), external_url)
        try:
            self.desk, self.courier = self._furnished()
        except BaseException:
            self._ledger.close()
            raise

    def _furnished(self) -> tuple[Desk, Courier]:
        receivers, routes, external_url = self._asked
        desk = Desk(self._ledger, routes, Policy(), external_url=external_url, labels=self._labels)
        return desk, Courier(desk, receivers, self._sender.send)

    def open(self) -> None:
        """Begin to deliver."""
        self._task = asyncio.create_task(self.courier.run())

    async def refit(self, receivers: Sequence[Receiver], routes: Sequence[Route], external_url: str) -> str | None:
        """Others are to be told from now on. Why that cannot be, or None."""
        asked = (tuple(receivers), tuple(routes), external_url)
        if asked == self._asked:
            return None
        if not self.desk.flush():
            return "the incident file cannot be written now, and what is not in it would be lost; make room and reload again"
        await self._stop()
        self._asked = asked
        self.desk, self.courier = self._furnished()
        self.open()
        return None

    async def close(self) -> None:
        """Stop delivering, write everything, give the file free. What was not delivered is by the next process."""
        await self._stop()
        self.desk.flush()
        await self._sender.aclose()
        self._ledger.close()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def hear(self, diagnosis: EngineDiagnosis) -> frozenset[State]:
        """Work a verdict in; the states of the engine's open incidents afterwards, of all that are more than notes."""
        self.desk.hear(diagnosis)
        return frozenset(
            i.state for i in self.desk.incidents if i.engine == diagnosis.engine.id and i.open and i.severity is not Severity.NOTE
        )

    def open_incidents(self, engine: str | None = None) -> tuple[Incident, ...]:
        """Those that are there now, the newest first; of one engine or of all."""
        live = (i for i in self.desk.incidents if i.open and i.state is not State.RESOLVED and engine in (None, i.engine))
        return tuple(sorted(live, key=lambda i: -i.opened))

    def engines(self) -> frozenset[str]:
        """Engines with incidents that can still change."""
        return frozenset(i.engine for i in self.desk.incidents if i.open)

    def status(self) -> tuple[LineStatus, ...]:
        """How each receiver fares."""
        return self.courier.status()

    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the file or with receivers, and that delivering has ended, which is a defect."""
        dead = self._task is not None and self._task.done() and bool(self.courier.lines)  # without receivers there is nothing to do
        ended = (Problem("alerts", "delivery has ended, which is a defect of slowrank", "restart it; nothing is lost"),) if dead else ()
        return (*self.desk.problems(), *self.courier.problems(), *ended)
