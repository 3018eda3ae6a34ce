"""What is read of an engine's machines beside its own pages: exporters of cards, drivers, processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.errors import ConfigError, SourceError
from collector.model import Page, Source
from collector.scrape import Target, scrape
from collector.targets import with_machines

METRICS = Source.SGLANG_METRICS
PAGE = (Path(__file__).parents[1] / "captures" / "sglang-0.5.23" / "tp4-dp2-ep4.prom").read_bytes()
KEY = "sk-hunter2"


def test_machines_are_read_beside_the_engine_and_without_its_key(serving: Any, seeing: Any) -> None:
    """The exporter's page is asked for in full and the engine's key is not for it; this node's processes are a page of their own."""
    cards = b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 50\n'

    async def run() -> tuple[list[Page], list[tuple[str, dict[str, str]]]]:
        async with serving(lambda _: (200, PAGE, {})) as engine, serving(lambda _: (200, cards, {})) as exporter:
            target = with_machines(Target("e", (engine.url,), KEY), [f"{exporter.url}/gpu/metrics"], frozenset({Source.PROCFS}))
            seen = seeing(lambda pages: {p.source for p in pages} >= {METRICS, Source.DCGM, Source.PROCFS})
            await scrape([target], seen, intervals={METRICS: 60.0}, stop=seen.stop)
            return seen.pages, exporter.asked

    pages, asked = asyncio.run(run())
    first = {page.source: page for page in pages}
    assert all(page.engine == "e" and page.error is None for page in first.values())
    assert first[Source.DCGM].body == cards
    assert first[Source.DCGM].node.endswith("/gpu/metrics")
    assert b"slowrank.procfs/1" in first[Source.PROCFS].body
    assert [path for path, _ in asked] == ["/gpu/metrics"]
    assert not any("authorization" in headers for _, headers in asked)


def test_a_driver_that_is_not_there_stops_the_scrape_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """--nvml on a node without it is a usage error, not a missing page every two seconds."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    target = with_machines(Target("e", ("http://127.0.0.1:9",)), [], frozenset({Source.NVML}))
    with pytest.raises(ConfigError, match=r"slowrank\[nvml\]"):
        asyncio.run(scrape([target], lambda page: None, stop=asyncio.Event()))


def test_a_look_that_fails_is_a_page_with_an_error(seeing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that has stopped answering: what it said, as for any other page."""

    def look() -> bytes:
        raise SourceError("the driver does not answer any more")

    monkeypatch.setattr("collector.hardware.local.lookers", lambda sources, nodes: [(Source.NVML, look)] if sources else [])
    target = with_machines(Target("e", ("http://127.0.0.1:9",)), [], frozenset({Source.NVML}))
    seen = seeing(bool)
    asyncio.run(scrape([target], seen, intervals={}, stop=seen.stop))
    assert seen.pages[0].error == "nvml: the driver does not answer any more"
    assert seen.pages[0].status == 0
