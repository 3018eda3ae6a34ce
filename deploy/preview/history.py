"""Twenty minutes of a simulated fleet, as a Prometheus that scrapes the engines and slowrank would hold it; text for promtool.

The engines are the workload's, in virtual time, each with its fault from the middle on. slowrank's own watches read and judge their pages
on that clock, and its own exporter makes its page: every series is what a running service shows, but for the figures of its process.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import msgspec

from collector import exported
from collector.capture import read_capture
from collector.exporter import Exporter, Sample
from collector.model import Page, Window
from dashboards.recording import recordings
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service import samples
from slowrank.service.cadence import METRICS
from slowrank.service.office import Office
from slowrank.service.watch import Watch
from workload.config import EXPERTS, ClusterConfig, Experts
from workload.schedule import Scheduled
from workload.virtual_time import recording
from workload.virtual_time.simulate import simulate

SECONDS = 1200.0
START = recording.START
END = START + SECONDS
SCRAPE = 15.0
"""s between two scrapes of ours, as docs/dashboards.md asks for."""

OFTEN = 1.0
"""s between pages of metrics in a capture, of which slowrank takes those that it would ask for: every 5 s, or 2 s when it suspects."""

NAMES = frozenset(name for rule in recordings() for name in re.findall(r"\bsglang:\w+", rule.expr))
"""Series of an engine's own page that are kept: those that recording rules read."""


@dataclass(frozen=True, slots=True)
class Story:
    """One engine, of which nothing comes any more after `ends` seconds. `scraping`, `judging`: how often slowrank reads and judges it."""

    name: str
    fault: str = ""
    rank: int | None = None
    ranks: int = 8
    busy: bool = True
    ends: float = SECONDS
    scraping: Scrape = Scrape()  # noqa: RUF009 - frozen
    judging: Diagnosis = Diagnosis()  # noqa: RUF009 - frozen

    @property
    def engine(self) -> str:
        """As slowrank calls it."""
        return f"http://{self.name}:30000"


SELDOM = Scrape.model_validate({"loads": "5s", "metrics": "15s", "metrics_suspected": "15s"})
STORIES = (
    Story("healthy"),
    Story("late-host", "host_cpu_starved", 3),
    Story("hot-card", "gpu_throttled", 6),
    Story("long-contexts", "context_length_skew", 5),
    Story("hot-experts", "expert_hotspot", 2),
    Story("idle", busy=False),
    Story("gone", ends=1000.0),
    Story("512-ranks", "host_cpu_starved", 137, ranks=512, scraping=SELDOM, judging=Diagnosis.model_validate({"every": "30s"})),
)
"""One of each class, two of which nothing can be told, and a large one, which is read seldom: a minute of it takes long to make."""


class Fleet:
    """slowrank's watches of all engines, on the clock of the pages that they are fed."""

    def __init__(self, incidents: Path) -> None:
        self.now = START
        self._office = Office(incidents, (), (), "")
        self._watches = {s.engine: self._watch(s) for s in STORIES}
        self._due = {s.engine: START + s.judging.every for s in STORIES}
        self._asked = {s.engine: START for s in STORIES}  # when the next page of metrics is asked for
        self.exporter = Exporter({"engines": self._of_engines, "service": self._of_service})

    def _watch(self, story: Story) -> Watch:
        return Watch(EngineSpec(story.engine, (story.engine,)), story.scraping, story.judging, self._office.hear, self._windows)

    def _windows(self) -> Sequence[Window]:
        return [watch.look.window for watch in self._watches.values() if watch.look is not None]

    async def feed(self, page: Page) -> None:
        """One page, in order of arrival; not if it comes sooner than slowrank would ask for it. What is due before is judged first."""
        self.now = page.arrived
        for story in STORIES:
            if self.now >= self._due[story.engine]:
                self._due[story.engine] += story.judging.every
                await self._watches[story.engine].judge()
                self._office.desk.age(self.now)
        watch = self._watches[page.engine]
        if page.source is METRICS:
            if page.arrived < self._asked[page.engine]:
                return
            self._asked[page.engine] = page.arrived + watch.cadence[METRICS] - 0.5 * OFTEN  # and no rounding makes it a second more
        watch.cadence.saw(page)
        watch.counts.note(page)
        watch.intake.feed(page)

    async def close(self) -> None:
        """Give the incident file free."""
        await self._office.close()

    def _of_engines(self) -> Iterator[Sample]:
        for watch in self._watches.values():
            yield from samples.of_engine(watch, self.now)
        yield from samples.of_rules(self._watches.values())

    def _of_service(self) -> Iterator[Sample]:
        yield from samples.of_process()
        yield from samples.of_office(self._office)
        yield Sample(exported.BUILD, 1.0, (version("slowrank"),))
        yield Sample(exported.SCRAPE_BUDGET, Scrape().budget)
        yield from (Sample(exported.RELOADS, 0.0, (outcome,)) for outcome in ("ok", "refused"))


def captures(folder: Path) -> dict[Story, Path]:
    """What each engine showed; those that are in the folder already are kept."""
    return {story: _capture(story, folder / f"{story.name}.slowrank") for story in STORIES}


async def write_samples(out: TextIO, shown: Mapping[Story, Path], incidents: Path) -> None:
    """All samples in OpenMetrics' text. `incidents`: the incident file, which must not be there yet."""
    fleet = Fleet(incidents)
    due, kept = START + SCRAPE, {story.engine: START for story in STORIES if story.ranks <= EXPERTS}
    for page in heapq.merge(*(_pages(story, path) for story, path in shown.items()), key=lambda page: page.arrived):
        await fleet.feed(page)
        if page.arrived >= due:
            for family in fleet.exporter.collect():
                out.writelines(_line(s.name, {**s.labels, "job": "slowrank"}, s.value, due) for s in family.samples)
            due += SCRAPE
        if page.source is METRICS and page.arrived >= kept.get(page.engine, END):
            out.writelines(_of_page(page))
            kept[page.engine] += SCRAPE
    out.write("# EOF\n")
    await fleet.close()


def _capture(story: Story, path: Path) -> Path:
    if path.exists():
        return path
    making = path.with_suffix(".part")
    making.unlink(missing_ok=True)
    config = ClusterConfig(ranks=story.ranks, seed=STORIES.index(story))
    if story.ranks > EXPERTS:  # one expert a card, of which one may be popular: a fault of its own, so all are alike here
        config = msgspec.structs.replace(config, experts=Experts(skew=0.02, drift=0.02, redundant=story.ranks - EXPERTS))
    if not story.busy:
        config = msgspec.structs.replace(config, traffic=None)
    faults = [Scheduled(story.fault, story.rank, SECONDS / 2)] if story.fault else []
    with recording.Recording(making, engine=story.engine) as sink:
        large, every = story.ranks > EXPERTS, story.scraping
        often, cards = (every.metrics, None) if large else (OFTEN, sink.cards)
        simulate(config, faults, story.ends, sink, loads_every=every.loads, metrics_every=often, cards=cards)
    return making.rename(path)


def _pages(story: Story, capture: Path) -> Iterator[Page]:
    return (replace(page, engine=story.engine) for page in read_capture(capture))


def _of_page(page: Page) -> Iterator[str]:
    where = f'instance="{page.engine.removeprefix("http://")}",job="engine"'
    for line in page.body.decode().splitlines():
        series, _, value = line.rpartition(" ")
        name, _, labels = series.partition("{")
        if name in NAMES:
            yield f"{name}{{{where}{',' + labels if labels else '}'} {value} {page.arrived:.3f}\n"


def _line(name: str, labels: Mapping[str, str], value: float, at: float) -> str:
    """`float`: numpy's are floats too, and print otherwise."""
    return f"{name}{{{','.join(f'{k}={json.dumps(v, ensure_ascii=False)}' for k, v in labels.items())}}} {float(value)!r} {at:.3f}\n"
