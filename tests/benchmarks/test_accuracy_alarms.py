"""Healthy rank-days: what they are made of, and that every ten seconds of them are diagnosed."""

from __future__ import annotations

from benchmarks.accuracy import alarms
from benchmarks.accuracy.plan import RANKS, TEST, Spec, presets


def test_rank_days_are_half_hours_of_every_kind_of_traffic():
    """Two rank-days of 8 ranks are twelve half hours: every preset twice, once with harmless events, on seeds that chose nothing."""
    parts = list(alarms.segments(2.0))
    assert sum((p.length - alarms.LEAD) * RANKS for p in parts) == 2 * 86_400
    assert [p.preset for p in parts] == [*presets(), *presets()]
    assert [bool(p.schedule) for p in parts] == [False] * 6 + [True] * 6
    assert min(p.seed for p in parts) == TEST


def test_every_ten_seconds_are_diagnosed_once_there_is_a_past():
    """The first verdict comes 90 s after the start, of chat it is healthy, and ten minutes later its window is the past: of 750 s the
    windows that end at 690 to 740 s are judged. Chat traffic pages nobody."""
    seen = alarms.watch(Spec("alarms", "", "chat", TEST, (), 0.0, 750.0))
    assert seen.windows == 6
    assert seen.said.total() == 6
    assert seen.rank_days == 60 * 8 / 86_400
    assert not seen.confirmed_pages
