"""The history that pictures of dashboards are drawn from is what a Prometheus would hold: our series and the engine's, in order."""

from __future__ import annotations

import asyncio
import io
import re

import pytest

from deploy.preview import history
from deploy.preview.__main__ import SHOTS
from deploy.preview.history import SCRAPE, START, STORIES, Story


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> list[tuple[str, float]]:
    """(series, time) of a history of one engine of two ranks, 90 s long."""
    folder = tmp_path_factory.mktemp("history")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "STORIES", (Story("small", ranks=2, ends=90.0),))
        out = io.StringIO()
        asyncio.run(history.write_samples(out, history.captures(folder), folder / "incidents.db"))
    lines = out.getvalue().splitlines()
    assert lines.pop() == "# EOF"
    found = [re.fullmatch(r"(\S+\{.*\}) (\S+) (\d+\.\d{3})", line) for line in lines]
    assert all(found)
    return [(match[1], float(match[3])) for match in found if match]


def test_both_pages_are_scraped_and_the_engine_is_judged(written):
    """Every 15 s; from the engine's page only what recording rules read."""
    times: dict[str, list[float]] = {}
    for series, at in written:
        times.setdefault(series, []).append(at)
    verdict = next(at for series, at in times.items() if series.startswith("slowrank_verdict{") and 'engine="http://small:30000"' in series)
    assert all((at - START) % SCRAPE == 0 for at in verdict)
    theirs = {series for series in times if series.startswith("sglang:")}
    assert {series.partition("{")[0] for series in theirs} <= history.NAMES
    assert {rank for series in theirs for rank in re.findall(r'dp_rank="(\d)"', series)} == {"0", "1"}
    for series, at in times.items():
        assert at == sorted(set(at)), series
        assert START <= at[0], series
        assert at[-1] <= START + 90.0, series


def test_levels_of_cards_are_in_it(written):
    """What the rank page asks for."""
    assert any(series.startswith("slowrank_card_temperature_celsius{") for series, _ in written)


def test_pictures_are_of_engines_that_are_simulated():
    """Each variable has a value that the history holds."""
    engines = {story.engine: story.ranks for story in STORIES}
    for _, variables in SHOTS.values():
        assert variables.get("engine", STORIES[0].engine) in engines
        assert int(variables.get("rank", 0)) < engines[variables.get("engine", STORIES[0].engine)]
