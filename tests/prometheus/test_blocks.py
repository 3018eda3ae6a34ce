"""Stored series as readings: the same as the pages that they came from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collector import signals
from collector.engines import sglang, vllm
from collector.exposition import Parser
from collector.model import Page, Source
from collector.prometheus import blocks
from collector.prometheus.matrix import Series

CAPTURES = Path(__file__).parents[1] / "captures"
AT = np.array([1000.0, 1015.0])


def stored(*pages: bytes, **target: str) -> list[Series]:
    """Two pages of the same series as a server keeps them."""
    first, second = (Parser().parse(page).samples for page in pages)
    keyed = {(s.name, frozenset(s.labels.items())): s.value for s in second}
    found = []
    for sample in first:
        values = np.array([sample.value, keyed.get((sample.name, frozenset(sample.labels.items())), np.nan)])
        found.append(Series({"__name__": sample.name, **sample.labels, **target}, AT, values))
    return found


@pytest.mark.parametrize(
    ("name", "kind", "source"),
    [
        ("sglang-0.5.23/tp8-dp8-ep8-t1.prom", "sglang", Source.SGLANG_METRICS),
        ("sglang-0.5.23/tp4-dp2-ep4.prom", "sglang", Source.SGLANG_METRICS),
        ("vllm-0.32.0/1.prom", "vllm", Source.VLLM_METRICS),
        ("vllm-0.32.0/slowmoe-1.prom", "vllm", Source.VLLM_METRICS),
    ],
)
def test_a_stored_page_reads_as_the_page(name: str, kind: str, source: Source) -> None:
    """Every signal of every rank, speakers and facts, of real pages with the labels of a scrape on each series."""
    body = (CAPTURES / name).read_bytes()
    page = Page("e", "http://n:1", source, 1000.0, 0.0, 200, "text/plain", body)
    reading = vllm.read(page) if kind == "vllm" else sglang.read(page)
    block = blocks.metrics("e", "n:1", kind, stored(body, body, instance="n:1", job="x", pod="p-0"), gauges=False)
    assert block is not None
    found = {
        signal: {rank: float(table[0, k]) for k, rank in enumerate(block.ranks) if np.isfinite(table[0, k])}
        for signal, table in block.values.items()
    }
    for signal, values in block.whole.items():
        found.setdefault(signal, {})[-1] = float(values[0])
    assert found.keys() == reading.values.keys()
    for signal, by_rank in reading.values.items():
        assert found[signal] == pytest.approx(dict(by_rank)), signal
    assert block.facts == reading.facts
    if kind == "sglang":
        assert block.speakers == reading.speakers


def loads(**fields: list[float]) -> list[Series]:
    """Two scrapes of rank 0's load."""
    return [Series({"__name__": f"sglang_{name}", "dp_rank": "0", "instance": "n:1"}, AT, np.array(v)) for name, v in fields.items()]


def test_a_stored_load_is_as_old_as_its_snapshot() -> None:
    """Its time is the scheduler's, its age what the scrape came later; the KV bytes of a token follow from the pool."""
    found = loads(num_running_reqs=[3, 4], timestamp=[999.5, 1014.0], total_prefill_busy_us=[1e6, 2e6])
    found += loads(memory_kv_cache_gb=[20.0, 20.0], memory_token_capacity=[400_000.0, 400_000.0], disagg_prefill_inflight_queue_reqs=[0, 0])
    block = blocks.loads("e", "n:1", found)
    assert block is not None
    assert block.times[:, 0] == pytest.approx([999.5, 1014.0])
    assert block.values[signals.SNAPSHOT_AGE][:, 0] == pytest.approx([0.5, 1.0])
    assert block.values[signals.RUNNING][:, 0].tolist() == [3, 4]
    assert block.values[signals.PREFILL_BUSY][:, 0] == pytest.approx([1.0, 2.0])
    assert block.values[signals.ACCEPT_LENGTH][:, 0].tolist() == [1, 1]  # all sections are there but speculation's
    assert block.facts.kv_bytes_per_token == pytest.approx(50_000)


def test_a_pool_of_no_number_says_nothing() -> None:
    """Infinite capacity is no capacity; the bytes of a token are unknown then, not NaN."""
    block = blocks.loads(
        "e",
        "n:1",
        loads(timestamp=[999.5, 1014.0], memory_kv_cache_gb=[20.0, np.inf], memory_token_capacity=[4e5, np.inf], num_used_tokens=[1, 1]),
    )
    assert block is not None
    assert block.facts.kv_bytes_per_token is None


def test_a_rank_that_never_published_is_not_idle() -> None:
    """A snapshot time of 0 is no load of 0."""
    block = blocks.loads("e", "n:1", loads(num_running_reqs=[0, 4], timestamp=[0.0, 1014.0]))
    assert block is not None
    assert np.isnan(block.times[0, 0])
    assert np.isnan(block.values[signals.RUNNING][0, 0])
    assert block.values[signals.RUNNING][1, 0] == 4


def test_clocks_that_are_apart() -> None:
    """A snapshot from the future has no age, and it is said."""
    block = blocks.loads("e", "n:1", loads(num_running_reqs=[1, 1], timestamp=[1060.0, 1075.0]))
    assert block is not None
    assert np.isnan(block.values[signals.SNAPSHOT_AGE]).all()
    assert "60 s ahead" in block.problems[0].what


def test_a_series_that_lost_samples_on_its_way() -> None:
    """A scrape of which one part is missing makes the sum unknown, not smaller."""
    labels = {"dp_rank": "0", "tp_rank": "0", "instance": "n:1", "forward_overlap": "none"}
    name = "sglang:scheduler_stage_seconds_total"
    at = np.array([0.0, 15.0, 30.0])
    a = Series({"__name__": name, **labels, "category": "run_batch"}, at, np.array([1.0, 2.0, 3.0]))
    b = Series({"__name__": name, **labels, "category": "other"}, at[[0, 2]], np.array([10.0, 20.0]))
    block = blocks.metrics("e", "n:1", "sglang", [a, b], gauges=False)
    assert block is not None
    assert np.array_equal(block.values["_stages"][:, 0], [11.0, np.nan, 23.0], equal_nan=True)


def test_gauges_stand_in_only_where_they_are_asked_for() -> None:
    """Requests of the process that speaks for a rank; without the wish they are no signal."""
    labels = {"dp_rank": "0", "tp_rank": "0", "pp_rank": "0", "instance": "n:1"}
    counter = Series({"__name__": "sglang:scheduler_process_cpu_seconds_total", **labels}, AT, np.array([1.0, 2.0]))
    gauge = Series({"__name__": "sglang:num_running_reqs", **labels}, AT, np.array([5.0, 6.0]))
    other = replace_labels(gauge, tp_rank="1")
    with_gauges = blocks.metrics("e", "n:1", "sglang", [counter, gauge, other], gauges=True)
    assert with_gauges is not None
    assert with_gauges.values[signals.RUNNING][:, 0].tolist() == [5, 6]
    without = blocks.metrics("e", "n:1", "sglang", [counter], gauges=False)
    assert without is not None
    assert signals.RUNNING not in without.values


def replace_labels(series: Series, **labels: str) -> Series:
    return series._replace(labels={**series.labels, **labels})
