"""One engine under watch: how often it is read, what its past is, what is booked of its pages, what its verdicts become."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.capture import read_capture
from collector.model import Engine, Page, Source, Window
from diagnose.incident_model import State
from diagnose.model import Class
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service.cadence import BURST, INFO, LOADS, METRICS, REMEMBERED, SLOWEST, Cadence
from slowrank.service.counts import Counts
from slowrank.service.keepsakes import Keepsakes
from slowrank.service.office import Office
from slowrank.service.past import KEPT, Past
from slowrank.service.watch import Watch


def page(
    took: float, source: Source = Source.SGLANG_METRICS, node: str = "n", error: str | None = None, at: float = 1e9, status=200, late=0.0
) -> Page:
    return Page("e", node, source, at, took, status, "", b"x" * 10, error, late)


def test_a_page_that_costs_much_is_asked_for_less_often():
    """85 ms at half a percent of a core: 17 s instead of the 5 s that were wanted; four times that share while suspected."""
    cadence = Cadence(Scrape())
    assert cadence[METRICS] == 5.0
    cadence.saw(page(0.085))
    assert cadence[METRICS] == pytest.approx(0.085 / 0.005)
    cadence.suspected = True
    assert cadence[METRICS] == pytest.approx(0.085 / (0.005 * BURST))
    cadence.saw(page(0.001))
    assert cadence[METRICS] == 2.0
    cadence.suspected = False
    assert cadence[METRICS] == 5.0


def test_the_shortest_reply_counts_and_old_ones_are_forgotten():
    """Waiting is no cost, so the least of the last replies is nearest to it; the dearest node decides; failures tell nothing."""
    cadence = Cadence(Scrape())
    for took in (0.5, 0.05, 0.4):
        cadence.saw(page(took))
    cadence.saw(page(9.0, error="no answer"))
    assert cadence.cost == 0.05
    cadence.saw(page(0.08, node="other"))
    assert cadence.cost == 0.08
    for _ in range(REMEMBERED):
        cadence.saw(page(0.2))
    assert cadence.cost == 0.2


@given(st.lists(st.floats(0.0, 100.0), max_size=30), st.booleans(), st.floats(0.0005, 1.0))
def test_the_interval_lies_between_what_is_wanted_and_the_slowest(replies, suspected, budget):
    """Whatever replies take: never faster than wanted, never slower than what leaves a window something to say; loads are as configured."""
    cadence = Cadence(Scrape(budget=budget))
    for took in replies:
        cadence.saw(page(took))
    cadence.suspected = suspected
    assert (2.0 if suspected else 5.0) <= cadence[METRICS] <= SLOWEST
    assert cadence[LOADS] == 1.0
    assert set(cadence) == {LOADS, METRICS, INFO}


def test_pages_are_booked_by_what_came_back():
    """A vLLM page and one that did not come are of one source, and so is how late they were asked for."""
    counts = Counts()
    counts.note(page(0.5, Source.VLLM_METRICS, at=100.5))
    counts.note(page(0.5, error="HTTP 500", status=500, at=107.5, late=2.0))
    counts.note(page(5.0, error="no answer", status=0, at=117.0, late=0.1))
    (pages,) = counts.pages.values()
    assert list(counts.pages) == [("n", "metrics")]
    assert pages.outcomes == {"ok": 1, "http_500": 1, "no_reply": 1}
    assert list(counts.late["metrics"].cumulated()) == [
        ("0.01", 1.0), ("0.05", 1.0), ("0.1", 2.0), ("0.25", 2.0), ("0.5", 2.0), ("1.0", 2.0), ("2.5", 3.0), ("+Inf", 3.0)
    ]  # fmt: skip
    assert counts.late["metrics"].total == pytest.approx(2.1)
    assert pages.seconds == pytest.approx(6.0)
    assert (pages.good, pages.error) == (100.5, "no answer")


def window(end: float, seconds: float = 30.0) -> Window:
    return Window(Engine("e", "sglang"), np.array([end - seconds, end]), (0,), {}, 1)


def noted(past: Past, end: float, *, healthy: bool, suspected: bool = False, confirmed: bool = False, note: bool = False) -> None:
    states = frozenset({State.SUSPECTED} if suspected else {State.CONFIRMED} if confirmed else {State.RESOLVED})
    past.note(window(end), healthy=healthy, noted=note, open_=states, reach=lambda seconds: window(end, seconds))


def test_a_past_must_grow_old_before_it_serves():
    """Nothing for ten minutes, then a window that is at least that old, and never older than twice that while the engine is healthy."""
    past = Past(600.0)
    for end in range(0, 6000, 10):
        noted(past, end, healthy=True)
        serving = past.baseline(end)
        if end < 600:
            assert serving is None
        else:
            assert serving is not None
            assert 600.0 <= end - serving.end <= 1200.0


def test_windows_just_before_an_incident_never_serve():
    """They may hold the beginning of the fault. What was old enough before stays the measure for as long as it lasts."""
    past = Past(600.0)
    for end in range(0, 1000, 10):
        noted(past, end, healthy=True)
    for end in range(1000, 1050, 10):
        noted(past, end, healthy=True, suspected=True)
    for end in range(1050, 5000, 10):
        noted(past, end, healthy=True, confirmed=True)
    serving = past.baseline(4990.0)
    assert serving is not None
    assert 0 < serving.end <= 450.0


def test_a_suspicion_that_comes_to_nothing_drops_no_past():
    """One window in twenty of agents is suspected, and none is confirmed: what grew old meanwhile serves, without a suspicion in it."""
    past = Past(600.0)
    for end in range(0, 3000, 10):
        noted(past, end, healthy=end % 200 != 100, suspected=end % 200 == 100)
        serving = past.baseline(end)
        assert serving is None or not any(serving.start < at <= serving.end for at in range(100, 3000, 200))
    assert serving is not None
    assert serving.end >= 1500.0


def test_a_past_reaches_back_to_the_last_suspicion_at_most():
    """Two minutes, though verdicts look at half of one; 90 s after a suspicion ended, 90 s; never less than the verdict looked at, and no
    window that overlaps a suspected one serves."""
    past = Past(60.0)
    noted(past, 1000.0, healthy=True, suspected=True)
    noted(past, 1020.0, healthy=True)
    assert past.baseline(1085.0) is None
    lengths = {}
    for end in (1090.0, 1160.0, 1300.0):
        noted(past, end, healthy=True)
        serving = past.baseline(end + 60.0)
        assert serving is not None
        assert serving.end == end
        lengths[end] = end - serving.start
    assert lengths == {1090.0: 90.0, 1160.0: 120.0, 1300.0: 120.0}


def test_a_note_serves_until_there_is_a_past():
    """Documents are prefilled in half of the steps, which without a past is noted in every window: the first of them is the past. Then
    only health is: what is noted against a past is not its like."""
    past = Past(60.0)
    noted(past, 1000.0, healthy=False, note=True)
    for end in range(1060, 1500, 10):
        noted(past, end, healthy=False, note=True)
        serving = past.baseline(end)
        assert serving is not None
        assert serving.end <= 1060.0
    noted(past, 1500.0, healthy=True)
    newer = past.baseline(1560.0)
    assert newer is not None
    assert newer.end == 1500.0


def test_what_is_not_healthy_never_serves():
    """An engine that is never healthy has no past, and the candidates are few."""
    past = Past(60.0)
    for end in range(0, 1000, 10):
        noted(past, end, healthy=False)
    assert past.baseline(1000.0) is None
    for end in range(1000, 1100):
        noted(past, end, healthy=True)
    assert len(past._waiting) <= KEPT + 1


async def played(path: Path, file: Path, keepsakes: Keepsakes | None = None) -> tuple[list[str], Watch, Office, list[frozenset[State]]]:
    """The story's pages through a watch and an office, judged each 10 s of their own time; what happened to incidents."""
    events: list[str] = []
    states: list[frozenset[State]] = []
    office = Office(file, (), (), "")

    def hear(diagnosis):
        events.extend(event.kind.value for event in office.desk.hear(diagnosis) if event.notify)
        states.append(frozenset(i.state for i in office.desk.incidents if i.open))
        return states[-1]

    watch: Watch | None = None
    due = 0.0
    for one in read_capture(path):
        if watch is None:
            due = one.arrived + 10.0
            watch = Watch(EngineSpec(one.engine, (one.node,)), Scrape(), Diagnosis(), hear, list, None, keepsakes)
        if one.arrived >= due:
            await watch.judge()
            due += 10.0
        watch._page(replace(one, took=0.005))
    assert watch is not None
    await office.close()
    return events, watch, office, states


def test_a_fault_that_comes_and_goes_is_told_once(story, tmp_path):
    """Confirmed once, resolved once, nothing else is told; it is read faster while suspected; there is a healthy past at the end."""
    events, watch, office, states = asyncio.run(played(story, tmp_path / "i.db"))
    assert [event for event in events if event != "changed"] == ["confirmed", "resolved"]
    (incident,) = (i for i in office.desk.incidents if i.confirmed is not None)
    assert (incident.cause, incident.ranks) == ("host_cpu_starved", (2,))
    assert frozenset({State.SUSPECTED}) in states
    assert not watch.cadence.suspected
    assert watch.look is not None
    assert watch.look.diagnosis.verdict.klass is Class.HEALTHY
    assert {said.klass for said in watch.verdicts} >= {Class.HEALTHY, Class.SINGLE_POINT}
    assert watch.past.baseline(watch.look.window.end) is not None
    assert not watch.rule_failures


def test_the_past_of_an_engine_outlives_a_restart(story, tmp_path):
    """What served at the end of a story serves at the beginning of the next process, from the folder beside the incident file."""
    keepsakes = Keepsakes(tmp_path / "i.db.past")
    _, watch, _, _ = asyncio.run(played(story, tmp_path / "i.db", keepsakes))
    served = watch.past.serving
    again = Watch(watch.spec, Scrape(), Diagnosis(), lambda found: frozenset(), list, None, Keepsakes(tmp_path / "i.db.past"))
    assert served is not None
    assert again.past.serving is not None
    assert (again.past.serving.end, again.past.serving.ranks) == (served.end, served.ranks)
    assert keepsakes.problems() == ()


def test_an_engine_that_stops_answering_is_no_longer_up():
    """Up by the age of its newest usable page; failures and its machines' pages, which may come when it is gone, say nothing of it."""
    watch = Watch(EngineSpec("e", ("n",)), Scrape(), Diagnosis(), lambda found: frozenset(), list)
    assert not watch.up(1e9)
    watch._page(page(0.1, Source.SGLANG_LOADS, error="no answer", status=0, at=1e9))
    watch._page(page(0.1, Source.DCGM, node="http://cards", at=1e9))
    assert not watch.up(1e9)
    watch._page(page(0.1, Source.SGLANG_LOADS, at=1e9 + 1.0))
    assert watch.up(1e9 + 6.0)
    watch._page(page(0.1, Source.DCGM, node="http://cards", at=1e9 + 60.0))
    assert not watch.up(1e9 + 61.0)
