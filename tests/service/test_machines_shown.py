"""What the service's page shows of ranks' cards: levels, by rank, while the engine is read."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from collector import exported, signals
from collector.capture import read_capture
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service import samples
from slowrank.service.watch import UP_FOR, Watch
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.recording import ENGINE, Recording
from workload.virtual_time.simulate import simulate

HOT = 2


@pytest.fixture
def watched(tmp_path):
    """A watch that was told a minute of four ranks, of which one has a hot card, with the cards' own pages; and its last moment."""
    path = tmp_path / "hot.slowrank"
    with Recording(path) as recording:
        simulate(ClusterConfig(ranks=4, seed=1), [Scheduled("gpu_throttled", HOT, 5.0)], 60.0, recording, cards=recording.cards)
    watch = Watch(EngineSpec(ENGINE, (ENGINE,)), Scrape(), Diagnosis(), lambda _: frozenset(), list)
    pages = list(read_capture(path))
    for page in pages:
        watch.counts.note(page)
        watch.intake.feed(page)
    asyncio.run(watch.judge())
    return watch, pages[-1].arrived


def shown(watch: Watch, now: float) -> dict[str, dict[str, float]]:
    """Family -> rank -> value, of what is of optional signals."""
    names = {exported.of_signal(s).name for s in signals.CATALOGUE.values() if s.optional}
    found: dict[str, dict[str, float]] = {}
    for sample in samples.of_engine(watch, now):
        if sample.name in names:
            assert isinstance(sample.value, float)  # a level, and no distribution
            found.setdefault(sample.name, {})[sample.labels[1]] = sample.value
    return found


def test_levels_of_cards_are_shown_by_rank(watched):
    """The hot card is the hottest and has the lowest clock; a card that is well runs faster than 1 GHz and is cooler than 90 C."""
    found = shown(*watched)
    clock, heat = found["slowrank_card_sm_clock_hertz"], found["slowrank_card_temperature_celsius"]
    assert set(clock) == set(heat) == {"0", "1", "2", "3"}
    assert min(clock, key=clock.__getitem__) == max(heat, key=heat.__getitem__) == str(HOT)
    assert min(value for rank, value in clock.items() if rank != str(HOT)) > 1e9
    assert max(value for rank, value in heat.items() if rank != str(HOT)) < 90.0


def test_nothing_that_counts_is_shown_of_machines(watched):
    """A window holds rates: shown as a total they would be nonsense."""
    assert not any(name.endswith("_total") for name in shown(*watched))


def test_the_list_of_the_pages_series_has_those_of_machines_that_it_can_hold(watched):
    """Given a window in which every card, process and log says something, the page shows the levels of cards and processes, and the list of
    its series names those and no others."""
    watch, now = watched
    window = watch.look.window
    said = {name: np.ones((len(window.ranks), len(window.edges) - 1)) for name, signal in signals.CATALOGUE.items() if signal.optional}
    watch.look = replace(watch.look, window=replace(window, values=window.values | said))
    listed = {family.name for name, family in exported.of_signals().items() if signals.CATALOGUE[name].optional}
    assert set(shown(watch, now)) == listed
    assert {"slowrank_card_power_watts", "slowrank_process_stopped_ratio"} < listed
    assert not any(name.endswith("_total") or "dispatch" in name for name in listed)


def test_levels_of_an_engine_that_is_not_read_are_not_shown(watched):
    """The last temperature of a node that is gone is no temperature."""
    watch, now = watched
    assert shown(watch, now + UP_FOR + 1.0) == {}
