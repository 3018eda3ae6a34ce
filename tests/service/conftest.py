"""Pages of an engine that plays a fault, and the service without its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collector.capture import read_capture
from slowrank.config.load import load
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service.plan import Plan, prepare
from slowrank.service.service import Service
from slowrank.service.watch import Watch
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Plan]:
    """The plan of a configuration's text; the incident file is in the test's folder."""

    def make(text: str, **environ: str) -> Plan:
        path = tmp_path / "slowrank.toml"
        path.write_text(text)
        return prepare(load(path, environ))

    return make


FAULT = (180.0, 240.0)
"""s after the start at which the fault of the story begins, and how long it acts."""


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """22 minutes of 4 ranks: 3 healthy, 4 in which rank 2's host is starved, 15 healthy again."""
    path = tmp_path_factory.mktemp("story") / "story.slowrank"
    with Recording(path) as recording:
        simulate(ClusterConfig(ranks=4, seed=5), [Scheduled("host_cpu_starved", 2, *FAULT, 1.0)], 1320.0, recording)
    return path


@pytest.fixture(scope="session")
def tell_story(story: Path) -> Callable[[Service, str, dict[str, str]], Watch]:
    """A watch of a service, under a name and labels, to which the story was told up to the middle of its fault."""

    def tell(service: Service, name: str, labels: dict[str, str]) -> Watch:
        spec = EngineSpec(name, ("http://a:1",), tuple(labels.items()))
        watch = Watch(spec, Scrape(), Diagnosis(), service.office.hear, list)

        async def play() -> None:
            pages = [replace(one, engine=name, node="http://a:1", took=0.005) for one in read_capture(story)]
            due = pages[0].arrived + 10.0
            for one in pages:
                if one.arrived > pages[0].arrived + FAULT[0] + 120.0:
                    return
                if one.arrived >= due:
                    await watch.judge()
                    due += 10.0
                watch._page(one)

        asyncio.run(play())
        return watch

    return tell
