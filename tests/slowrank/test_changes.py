"""Which change of an engine brings which other with it."""

from __future__ import annotations

from slowrank.changes import covers, least, settings

METRICS = "start SGLang with --enable-metrics"
TIMER = "start SGLang with --enable-metrics and SGLANG_ENABLE_METRICS_DEVICE_TIMER=1"
OLD = "upgrade SGLang to >= 0.5.18; /v1/loads needs no flag"


def test_settings_are_flags_variables_and_versions() -> None:
    """Only what can be typed counts, not the words around it."""
    assert settings(TIMER) == {"--enable-metrics", "SGLANG_ENABLE_METRICS_DEVICE_TIMER=1"}
    assert settings(OLD) == {">= 0.5.18"}


def test_a_change_covers_what_it_names_in_full() -> None:
    """The timer's restart has --enable-metrics in it, not the other way round; words without a setting cover themselves alone."""
    assert covers(TIMER, METRICS)
    assert not covers(METRICS, TIMER)
    assert not covers(OLD, METRICS)
    assert covers("ask a colleague", "ask a colleague")
    assert not covers(TIMER, "ask a colleague")


def test_the_least_changes_leave_out_what_another_brings() -> None:
    """Three sentences, two restarts' worth; two sentences of the same settings count once."""
    assert least([METRICS, TIMER, OLD, METRICS]) == (TIMER, OLD)
    assert least(["use --x", "set --x"]) == ("set --x",)
    assert least([]) == ()
