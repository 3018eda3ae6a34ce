"""What the drawings show: rank x time maps whose colours can be trusted, a bar to scale, a line from zero."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from collector import signals
from collector.model import Window
from diagnose.model import LostTime
from diagnose.report import charts, panels
from diagnose.report.heatmap import LEVELS, MOST_ROWS, HeatMap, heat_map, palette

MakeWindow = Callable[..., Window]


def _maps(seen: Window, culprits: Sequence[int] = ()) -> Mapping[str, HeatMap]:
    return {m.title: m for m in (heat_map(p, seen.ranks, frozenset(culprits)) for p in panels.panels(seen, 0.05))}


def test_a_map_shows_wait_pairs_and_tokens_per_step(window: MakeWindow) -> None:
    """Both halves of the wait are added and divided by the steps; rows carry their mean in a unit."""
    maps = _maps(window(), [0])
    wait, pairs, tokens = maps.values()
    assert [row.mean for row in wait.rows] == ["4 ms"] * 5 + ["500 µs"] + ["4 ms"] * 2
    assert [row.mean for row in pairs.rows] == ["229,376 pairs"] + ["32,768 pairs"] * 7
    assert {row.mean for row in tokens.rows} == {"4 tokens"}
    assert [row.label for row in pairs.rows if row.culprit] == ["rank 0"]


def test_colours_follow_the_values(window: MakeWindow) -> None:
    """The largest value is the brightest, and the late rank's short wait lies in the darkest eighth of its peers' scale."""
    wait, pairs, tokens = _maps(window()).values()
    assert (pairs.strokes[-1].colour, pairs.strokes[-1].path) == (palette()[-1], "M0 0h20")
    assert wait.strokes[0].path == "M0 5h20"
    assert palette().index(wait.strokes[0].colour) == int(0.5 / 4.0 * LEVELS)
    assert [palette().index(s.colour) for s in tokens.strokes] == [LEVELS // 2]


def test_a_level_group_is_painted_calm(window: MakeWindow) -> None:
    """Microseconds of waiting stay at the dark end: the scale reaches 5% of a step of 50 ms; equal work stays in the middle."""
    level = window(changes={signals.SYNC_WAIT: 20.0 * 0.00005, signals.RECV_WAIT: 0.0, signals.RESIDENT_TOKENS: 32_768.0})
    wait, pairs, _ = _maps(level).values()
    assert [s.colour for s in wait.strokes] == [palette()[0]]
    assert wait.high == "2.5 ms"
    assert [s.colour for s in pairs.strokes] == [palette()[LEVELS // 2]]


def test_one_burst_does_not_darken_everything_else(window: MakeWindow) -> None:
    """A value far above the 98th percentile ends the scale there, and the legend says so."""
    values = np.full((8, 20), 1000.0)
    values[3, 7] = 1e9
    pairs = _maps(window(changes={signals.RESIDENT_TOKENS: values}))["Attention pairs per decode step"]
    assert pairs.high == "≥ 2,000 pairs"


def test_the_bar_is_to_scale() -> None:
    """A bar of 1000 is one step: 27% is 270 wide, the unexplained comes last, what would read 0.0% is left out."""
    parts = charts.bar(LostTime(0.31, {"unexplained": 0.04, "context_length_skew": 0.20, "slow_rank": 0.07, "long_prefill": 0.0004}), 1000)
    assert [(p.cause, p.start, p.width, p.share) for p in parts] == [
        ("context_length_skew", 0.0, 200.0, "20%"),
        ("slow_rank", 200.0, 70.0, "7.0%"),
        ("unexplained", 270.0, 40.0, "4.0%"),
    ]


def test_overlapping_causes_stay_inside_the_bar() -> None:
    """Shares that add up to more than a step are drawn in proportion."""
    parts = charts.bar(LostTime(1.0, {"a": 0.8, "b": 0.8}), 100)
    assert [(p.start, p.width) for p in parts] == [(0.0, 50.0), (50.0, 50.0)]


def test_step_time_is_drawn_from_zero_with_gaps() -> None:
    """Ticks are round, a gap in the observations is a gap in the line, a lone point is a dot."""
    drawn = charts.line(np.array([0.05, 0.05, np.nan, 0.05, np.nan, 0.03, 0.05]), "s")
    assert [(tick.at, tick.text) for tick in drawn.ticks] == [(110.0, "0 s"), (55.0, "30 ms"), (0.0, "60 ms")]
    assert [len(points.split()) for points in drawn.segments] == [2, 2]
    assert len(drawn.dots) == 1
    assert not charts.line(np.full(3, np.nan), "s").drawn


def test_times_are_in_utc(window: MakeWindow) -> None:
    """2026-07-30 03:00 UTC and twenty seconds on; a window of days says the day."""
    assert [tick.text for tick in charts.times(window().edges)] == ["03:00:00", "03:00:05", "03:00:10", "03:00:15", "03:00:20"]
    days = charts.times(1_785_380_400.0 + np.array([0.0, 4 * 86_400.0]))
    assert [tick.text for tick in days] == ["07-30 03:00", "07-31 03:00", "08-01 03:00", "08-02 03:00", "08-03 03:00"]


def test_many_ranks_share_rows_and_the_culprit_stands_alone(window: MakeWindow) -> None:
    """Of 512 ranks a row is 16 neighbours; the culprit has its own row on top and is not averaged away in its neighbours'."""
    values = np.full((512, 20), 1000.0)
    values[137] = 16_000.0
    wide = window(512, changes={signals.RESIDENT_TOKENS: values})
    pairs = _maps(wide, [137])["Attention pairs per decode step"]
    assert len(pairs.rows) == MOST_ROWS + 1
    assert [(r.label, r.mean, r.culprit) for r in pairs.rows[:2]] == [("rank 137", "16,000 pairs", True), ("0–15", "1,000 pairs", False)]
    assert next(r.mean for r in pairs.rows if r.label == "128–143") == "16,000 pairs"
    assert "a row shows the largest of 16 neighbours" in pairs.caption


def test_of_waits_the_least_is_shown_of_neighbours(window: MakeWindow) -> None:
    """Who waits least is late: in a shared row that rank decides."""
    wait = _maps(window(512))["Wait per step"]
    assert next(r.mean for r in wait.rows if r.label == "0–15") == "500 µs"
    assert next(r.mean for r in wait.rows if r.label == "16–31") == "4 ms"


def test_a_row_says_the_mean_that_the_table_says(window: MakeWindow) -> None:
    """100 ms of waiting per second at 10 steps in one interval and at 30 in the other are 200 ms over 40 steps: 5 ms, not 6.67."""
    shape = (8, 2)
    steps = np.broadcast_to([10.0, 30.0], shape)
    seen = window(8, 2, {signals.STEPS_ACTIVE: steps, signals.SYNC_WAIT: np.full(shape, 0.1), signals.RECV_WAIT: np.zeros(shape)})
    assert {row.mean for row in _maps(seen)["Wait per step"].rows} == {"5 ms"}
