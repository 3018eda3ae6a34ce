"""What slowrank exported of an engine as a whole comes back as the same facts."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import exported
from collector.capture import read_capture
from collector.engines.limits import MAX_RANKS
from collector.exporter import Exporter, written
from collector.exposition import Parser
from collector.model import Clock, Facts
from collector.prometheus import blocks
from collector.prometheus.matrix import Series
from collector.prometheus.queries import FACTS
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service.samples import of_engine
from slowrank.service.watch import Watch
from workload.config import ClusterConfig
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate


def series(name: str, value: float, at: float = 1000.0, **labels: str) -> Series:
    return Series({"__name__": name, "engine": "e", **labels}, np.array([at - 15.0, at]), np.array([value, value]))


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Watch:
    """Of an engine of 2 ranks that was read for 20 s, and judged."""
    path = tmp_path_factory.mktemp("facts") / "capture"
    with Recording(path) as recording:
        simulate(ClusterConfig(ranks=2, seed=3, card="H200"), [], 20.0, recording)
    pages = list(read_capture(path))
    watch = Watch(EngineSpec(pages[0].engine, (pages[0].node,)), Scrape(), Diagnosis(), lambda _: frozenset(), list)
    for page in pages:
        watch._page(page)
    asyncio.run(watch.judge())
    return watch


def test_facts_go_to_a_history_server_and_come_back(watch) -> None:
    """The card, the version, the role, the bytes of a token's cache: as on the pages that slowrank read."""
    now = watch.look.window.end
    page = written(Exporter({"engine": lambda: of_engine(watch, now)}).collect())
    kept = [
        Series({"__name__": sample.name, **sample.labels}, np.array([now]), np.array([sample.value]))
        for sample in Parser(FACTS).parse(page).samples
    ]
    facts = watch.look.window.engine.facts
    assert "H200" in (facts.accelerator or "")
    assert facts.kv_bytes_per_token
    assert blocks.facts(kept) == facts


def test_an_engine_that_does_not_answer_says_nothing_of_itself(watch) -> None:
    """Its last page may be of what it no longer is: a minute later no fact is exported."""
    names = {sample.name for sample in of_engine(watch, watch.look.window.end + 61.0)}
    assert not names & set(FACTS)


def test_the_newest_series_counts() -> None:
    """A model that was replaced within the hour leaves two series; clock and numbers are read as what they are."""
    old = series(exported.ENGINE_INFO, 1.0, 500.0, model="a", card="H20", clock="", role="unified", version="1", kind="vllm")
    new = series(exported.ENGINE_INFO, 1.0, 900.0, model="b", card="H200", clock="no common clock", role="", version="2", kind="vllm")
    cards = series(exported.ENGINE_CARDS, 16.0)
    assert blocks.facts([new, cards, old]) == Facts(version="2", model="b", accelerator="H200", clock=Clock.NONE, cards=16)
    assert blocks.facts([]) == Facts()


@given(st.text(), st.floats())
def test_whatever_a_server_kept_is_a_fact_or_none(text: str, number: float) -> None:
    """A role or clock that there is not, and numbers that count nothing, are not known."""
    info = series(exported.ENGINE_INFO, 1.0, role=text, clock=text, card=text)
    facts = blocks.facts([info, series(exported.ENGINE_RANKS, number), series(exported.TOKEN_BYTES, number)])
    assert facts.role in {None, "unified", "prefill", "decode"}
    assert facts.clock is None or facts.clock in Clock
    assert facts.accelerator == (text or None)
    assert facts.kv_bytes_per_token is None or facts.kv_bytes_per_token == pytest.approx(number)
    assert facts.expected_ranks is None or 1 <= facts.expected_ranks <= MAX_RANKS
