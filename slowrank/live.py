"""Read live targets for a while: the real collector, a progress bar, and an early word when nobody answers."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collector.errors import SlowrankError
from collector.scrape import MACHINES
from slowrank.exits import UnreachableError
from slowrank.terminal import Bar, bar

if TYPE_CHECKING:
    from collector.model import Page
    from collector.scrape import Target

PATIENCE = 3.0
"""Seconds that an engine which is just restarting gets to answer once: three attempts at the loads page."""

_TICK = 0.1


@dataclass(slots=True)
class Contact:
    """Who answered so far, and what was in the way of the others."""

    engines: tuple[str, ...]
    reached: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)

    def note(self, page: Page) -> None:
        """Take one page into account. Pages of the machines say nothing of the engine: they may answer when it is gone."""
        if page.source in MACHINES:
            return
        if page.error is None:
            self.reached.add(page.engine)
        else:
            self.refused.setdefault(page.engine, page.error)

    @property
    def hopeless(self) -> bool:
        """Every engine failed to answer at least once and none ever answered."""
        return not self.reached and set(self.engines) <= set(self.refused)

    @property
    def unreached(self) -> Mapping[str, str]:
        """The engines that never answered, and why."""
        return {engine: self.refused.get(engine, "no reply yet") for engine in self.engines if engine not in self.reached}


@dataclass(frozen=True, slots=True)
class Collected:
    """How a collection went."""

    unreached: Mapping[str, str]
    interrupted: bool


def collect(targets: Sequence[Target], seconds: float, on_page: Callable[[Page], None]) -> Collected:
    """Hand every page of `targets` to `on_page` for `seconds`. Raises UnreachableError early when no target answers.

    The first Ctrl-C ends the collection and keeps what there is; the second one ends the command.
    """
    contact = Contact(tuple(dict.fromkeys(t.engine for t in targets)))

    def both(page: Page) -> None:
        contact.note(page)
        on_page(page)

    doing = f"reading {len(contact.engines)} engines" if len(contact.engines) > 1 else f"reading {contact.engines[0]}"
    with bar(doing, seconds) as progress:
        try:
            interrupted = asyncio.run(_collect(targets, seconds, both, contact, progress))
        except ExceptionGroup as group:
            raise _foreseen(group) or group from None
    if not contact.reached and interrupted:
        raise KeyboardInterrupt  # nothing to keep
    if not contact.reached:
        raise UnreachableError(_nobody(contact))
    return Collected(contact.unreached, interrupted)


async def _collect(targets: Sequence[Target], seconds: float, on_page: Callable[[Page], None], contact: Contact, progress: Bar) -> bool:
    from collector.scrape import scrape

    stop = asyncio.Event()
    with _first_interrupt_stops(stop):
        task = asyncio.create_task(scrape(targets, on_page, stop=stop))
        try:
            started = time.monotonic()
            while not stop.is_set() and not task.done() and (passed := time.monotonic() - started) < seconds:
                progress.at(passed)
                if passed > PATIENCE and contact.hopeless:
                    break
                await asyncio.wait({task}, timeout=min(_TICK, seconds - passed))
            interrupted = stop.is_set()
        finally:
            stop.set()
            await task
    return interrupted


@contextmanager
def _first_interrupt_stops(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def on_interrupt() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _foreseen(group: BaseExceptionGroup[Exception]) -> Exception | None:
    """The error that `on_page` raised on purpose (a full disk), out of the group that the collector's tasks make of it."""
    found: BaseException | None = group.subgroup(SlowrankError)
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, Exception) else None


def _nobody(contact: Contact) -> str:
    return "no target gives a usable page: " + " | ".join(contact.unreached.values())
