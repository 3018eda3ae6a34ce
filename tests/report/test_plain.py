"""Units as a person says them, and foreign text that cannot act."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.report.plain import number, percent, prose, quantity, safe, utc


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0421, "s", "42.1 ms"),
        (0.00031, "s/step", "310 µs/step"),
        (2.5, "s", "2.5 s"),
        (0.0, "s", "0 s"),
        (0.42, "s/s", "420 ms/s"),
        (0.31, "ratio", "31%"),
        (0.012, "ratio", "1.2%"),
        (229_376.0, "pairs/step", "229,376 pairs/step"),
        (12.0, "1/s", "12/s"),
        (3.0, "1", "3"),
        (7.04, "times", "7.04 times"),
        (None, "s", "not observed"),
        (float("nan"), "pairs", "not observed"),
        (float("inf"), "s", "beyond measure"),
    ],
)
def test_quantity(value: Any, unit: str, said: str) -> None:
    """Seconds scale to ms and µs, ratios are percentages, counts carry thousands separators."""
    assert quantity(value, unit) == said


def test_number_and_percent_keep_three_digits() -> None:
    """Small numbers keep their digits, large ones lose their decimals."""
    assert [number(v) for v in (0.1234, 99.94, 100.4, 1_234_567.8)] == ["0.123", "99.9", "100", "1,234,568"]
    assert [percent(v) for v in (0, 0.0012, 0.0996, 0.31)] == ["0%", "0.1%", "10%", "31%"]


def test_times_are_utc_and_say_so() -> None:
    """A time from a broken clock does not stop the report."""
    assert utc(1_785_380_400.0) == "2026-07-30 03:00:00 UTC"
    assert utc(float("nan")) == utc(1e300) == "an unknown time"


@given(st.text())
def test_safe_text_holds_nothing_that_acts(text: str) -> None:
    """Whatever comes in, one line of harmless characters goes out."""
    for made in (safe(text), prose(text)):
        assert not {unicodedata.category(c) for c in made} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text(alphabet=st.characters(whitelist_categories=("L", "N", "P", "S")), max_size=200))
def test_safe_leaves_harmless_text_alone(text: str) -> None:
    """Letters, digits, punctuation (markup brackets too) pass unchanged."""
    assert safe(text) == text


def test_safe_cuts() -> None:
    """The limit holds and is visible."""
    assert safe("x" * 50, 10) == "xxxxxxx..."
