"""Asks a target once what it is: whether it answers /v1/loads, and which ranks its /metrics holds. IO; the pages are read as always."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from collector.engines.kinds import READERS, kind_of
from collector.errors import SourceError
from collector.model import Page, Source
from collector.scrape import scrape
from collector.targets import Target
from slowrank.discovery.grouping import Told
from slowrank.discovery.spec import Found

LIMIT = 10.0
"""s for both pages of a target."""

AT_ONCE = 8
"""Targets asked at a time: a list of hundreds is through in a minute, and two pages each are nothing to them."""

_LOADS, _METRICS = Source.SGLANG_LOADS, Source.SGLANG_METRICS


async def probe(targets: Iterable[Found]) -> dict[str, Told]:
    """What each target says, by URL; those that do not answer are left out."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(found: Found) -> tuple[str, Told | None]:
        async with gate:
            return found.url, await _ask(found)

    return {url: told for url, told in await asyncio.gather(*(one(found) for found in targets)) if told is not None}


async def _ask(found: Found) -> Told | None:
    pages: dict[bool, Page] = {}  # whether it is the load page
    stop = asyncio.Event()

    def take(page: Page) -> None:
        pages[page.source is _LOADS] = page
        if len(pages) == 2:
            stop.set()

    token = found.reach.token
    target = Target(found.url, (found.url,), None if token is None else token.reveal())
    once = {_LOADS: LIMIT * 2, _METRICS: LIMIT * 2}
    limits = dict.fromkeys(once, LIMIT)
    try:
        async with asyncio.timeout(LIMIT + 1.0):
            await scrape([target], take, intervals=once, stop=stop, timeouts=limits, trust=found.reach.trust())
    except TimeoutError:
        pass  # what came is what is known
    return told(pages.get(True), pages.get(False))


def told(loads: Page | None, metrics: Page | None) -> Told | None:
    """What two pages of one target say; None when its /metrics cannot be read, as then nothing is known."""
    if metrics is None or metrics.error is not None:
        return None
    kind = kind_of(metrics.source)
    try:
        page = READERS[kind]().read(metrics)
    except SourceError:
        return None
    whole: frozenset[int] = frozenset()
    model = page.facts.model
    if loads is not None and loads.error is None and kind == "sglang":
        try:
            said = READERS[kind]().read(loads)
        except SourceError:
            pass  # a load page that nobody can read is none
        else:
            whole = _ranks(said.times)
            model = model or said.facts.model
    return Told(kind, bool(whole), _ranks(page.times), whole, model)


def _ranks(times: Iterable[int]) -> frozenset[int]:
    return frozenset(rank for rank in times if rank >= 0)
