"""A scrape that stops when it has seen enough, of a server that answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from collector.model import Page, Source
from collector.scrape import Target, scrape

METRICS = Source.SGLANG_METRICS


class Seen:
    """Collects pages and stops the scrape when there are enough."""

    def __init__(self, enough: Callable[[list[Page]], bool]) -> None:
        self.pages: list[Page] = []
        self.stop = asyncio.Event()
        self._enough = enough

    def __call__(self, page: Page) -> None:
        self.pages.append(page)
        if self._enough(self.pages):
            self.stop.set()


async def first_page(nodes: tuple[str, ...], source: Source = METRICS, *, key: str | None = None, **options: Any) -> Page:
    """The first page of one source."""
    seen = Seen(bool)
    limit = options.pop("timeout", 20.0)
    await scrape([Target("e", nodes, key)], seen, intervals={source: 60.0}, stop=seen.stop, timeouts={source: limit}, **options)
    return seen.pages[0]


@pytest.fixture
def seeing() -> type[Seen]:
    """`seen = seeing(enough)`."""
    return Seen


@pytest.fixture
def once() -> Callable[..., Any]:
    """`await once(nodes, source)`: the first page."""
    return first_page


@pytest.fixture
def ask(serving: Any) -> Callable[..., Page]:
    """`ask(answers, source)`: the first page that a server with these answers gives."""

    def ask(answers: Any, source: Source = METRICS, **options: Any) -> Page:
        async def run() -> Page:
            async with serving(answers) as server:
                return await first_page((server.url,), source, **options)

        return asyncio.run(run())

    return ask
