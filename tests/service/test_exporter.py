"""Our own page: every number under its name and labels, hostile text as text, and one broken part breaks no other."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector import exported
from collector.exporter import Distribution, Exporter, Sample, written


def page(*samples: Sample) -> str:
    return written(Exporter({"test": lambda: samples}).collect()).decode()


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_samples_are_written_under_their_names_and_labels():
    """Gauges and counters as Prometheus' own parser reads them back."""
    text = page(
        Sample(exported.STEP_SECONDS, 0.03, ("e",)), Sample(exported.DIAGNOSES, 7.0, ("e",)), Sample(exported.BUILD, 1.0, ("0.1.0",))
    )
    assert values(text) == {
        ("slowrank_step_seconds", (("engine", "e"),)): 0.03,
        ("slowrank_diagnoses_total", (("engine", "e"),)): 7.0,
        ("slowrank_build_info", (("version", "0.1.0"),)): 1.0,
    }
    assert "# TYPE slowrank_diagnoses_total counter" in text


def test_a_number_of_numpy_is_a_number_on_the_page():
    """numpy 2 prints its floats with their type's name, which no scraper reads."""
    text = page(Sample(exported.STEP_SECONDS, np.float64(0.03), ("e",)))
    assert values(text) == {(exported.STEP_SECONDS, (("engine", "e"),)): 0.03}


def test_a_distribution_is_written_as_prometheus_buckets():
    """Cumulated, a value on a bound not above it, sum and count beside them."""
    late = Distribution(exported.LATE_BOUNDS)
    for value in (0.0, 0.1, 0.1001, 9.0):
        late.see(value)
    text = page(Sample(exported.SCRAPE_LATE, late, ("e", "loads")))
    assert "# TYPE slowrank_scrape_late_seconds histogram" in text
    found = {(name.removeprefix(exported.SCRAPE_LATE), dict(labels).get("le")): n for (name, labels), n in values(text).items()}
    buckets = {"0.01": 1.0, "0.05": 1.0, "0.1": 2.0, "0.25": 3.0, "0.5": 3.0, "1.0": 3.0, "2.5": 3.0, "+Inf": 4.0}
    assert {le: found.pop(("_bucket", le)) for le in buckets} == buckets
    assert found == {("_count", None): 4.0, ("_sum", None): pytest.approx(9.2001)}


@given(st.lists(st.floats(0, 100), max_size=30), st.lists(st.floats(0, 10), min_size=1, max_size=5, unique=True).map(sorted))
def test_buckets_of_a_distribution_count_what_is_not_above_them(seen, bounds):
    """Whatever the bounds: Prometheus' definition, and the last bucket holds all."""
    found = Distribution(bounds)
    for value in seen:
        found.see(value)
    *finite, last = found.cumulated()
    assert last == ("+Inf", float(len(seen)))
    assert [(float(le), n) for le, n in finite] == [(bound, sum(value <= bound for value in seen)) for bound in bounds]


def test_labels_of_people_are_on_each_series_of_their_family():
    """Engines have different labels; one that an engine lacks is empty there, as Prometheus asks of one family."""
    text = page(
        Sample(exported.ENGINE_LABELS, 1.0, ("a",), (("label_zone", "z"),)),
        Sample(exported.ENGINE_LABELS, 1.0, ("b",), (("label_gpu", "h"),)),
    )
    assert set(values(text)) == {
        ("slowrank_engine_labels", (("engine", "a"), ("label_gpu", ""), ("label_zone", "z"))),
        ("slowrank_engine_labels", (("engine", "b"), ("label_gpu", "h"), ("label_zone", ""))),
    }


@given(st.text(st.characters()))
def test_any_name_of_an_engine_is_text(name):
    """Quotes, line breaks, backslashes, escapes of terminals: the page has the one series, whose label reads back."""
    ((_, labels),) = values(page(Sample(exported.STEP_SECONDS, 1.0, (name,))))
    assert dict(labels)["engine"] == name.encode("utf-8", "replace").decode()


def test_a_part_that_breaks_is_counted_and_the_others_are_shown(caplog):
    """It is logged, and the page says which part is missing."""

    def broken():
        yield Sample(exported.STEP_SECONDS, 1.0, ("e",))
        raise RuntimeError("a defect")

    exporter = Exporter({"broken": broken, "fine": lambda: [Sample(exported.BUILD, 1.0, ("v",))]})
    for count in (1.0, 2.0):
        found = values(written(exporter.collect()).decode())
        assert found["slowrank_export_failures_total", (("part", "broken"),)] == count
        assert found["slowrank_build_info", (("version", "v"),)] == 1.0
    assert "which is a defect of slowrank" in caplog.text


def test_parts_are_taken_with_room_for_others_between_them():
    """The same page as taken at once; the loop turns between two parts, and the parts of each page are asked for anew."""
    made: list[int] = []
    turns: list[int] = []

    def part(n):
        made.append(len(turns))
        return [Sample(exported.STEP_SECONDS, n, (f"e{n}",))]

    async def play():
        over = asyncio.Event()

        async def others():
            while not over.is_set():
                turns.append(1)
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        await asyncio.sleep(0)
        found = await exporter.page()
        over.set()
        await beside
        return found

    exporter = Exporter(lambda: [("engines", partial(part, n)) for n in range(3)])
    found = asyncio.run(play())
    assert [turn - made[0] for turn in made] == [0, 1, 2]
    assert values(found.decode()) == values(written(exporter.collect()).decode())
    assert len(values(found.decode())) == 3


def test_a_sample_of_wrong_labels_is_a_defect_that_shows():
    """Values that do not fit the family's label names are never written under wrong ones."""
    with pytest.raises(ValueError, match="has the labels"):
        page(Sample(exported.STEP_SECONDS, 1.0, ("e", "0")))
