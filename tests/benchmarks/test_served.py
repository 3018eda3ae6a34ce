"""What the benchmarks read off slowrank's own page."""

from __future__ import annotations

import math

from benchmarks.served import value, values

PAGE = """
# TYPE slowrank_scrapes_total counter
slowrank_scrapes_total{engine="a",source="loads"} 3.0
slowrank_scrapes_total{engine="b",source="metrics"} 4.0
slowrank_scrapes_total{engine="b",source="loads"} 5.0
slowrank_tasks 7.0
slowrank_tasks_more 9.0
"""


def test_samples_are_told_apart_by_name_and_label():
    """In the order of the page; a longer name is another series."""
    assert values(PAGE, "slowrank_scrapes_total") == [3.0, 4.0, 5.0]
    assert values(PAGE, "slowrank_scrapes_total", 'source="loads"') == [3.0, 5.0]
    assert values(PAGE, "slowrank_tasks") == [7.0]


def test_what_is_not_there_is_not_a_number():
    """And not 0."""
    assert value(PAGE, "slowrank_scrapes_total", 'engine="b"') == 4.0
    assert math.isnan(value(PAGE, "slowrank_scrapes"))
