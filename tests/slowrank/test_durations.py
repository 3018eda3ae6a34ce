"""Durations are read as people write them, and what is no duration says how to write one."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slowrank.durations import LONGEST, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20s", 20.0), ("2m", 120.0), ("1h", 3600.0), ("1m30s", 90.0), ("1.5m", 90.0), ("500ms", 0.5), ("24h", LONGEST)],
)
def test_as_people_write_them(text: str, seconds: float) -> None:
    """Units add up."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "20", "s", "-5s", "5 s", "5x", "1h ", "1s2", "0s", "25h", "1e9s", "nan", "infs", "٣s"])
def test_what_is_no_duration_is_refused_with_the_value_seen(text: str) -> None:
    """The message holds what was written, so that a slip in a script is found."""
    with pytest.raises(ValueError) as refused:
        parse_duration(text)
    assert repr(text) in str(refused.value)


@given(st.integers(1, 23), st.integers(0, 59), st.integers(0, 59))
def test_every_clock_time_survives(hours: int, minutes: int, seconds: int) -> None:
    """Hours, minutes and seconds written together mean their sum."""
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    """Nothing else is ever raised, and nothing outside a day comes back."""
    with contextlib.suppress(ValueError):
        assert 0 < parse_duration(text) <= LONGEST
