"""A recording is read row by row, and a slip in it is told with its place."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workload.prefix import Segment
from workload.traffic import Shape
from workload.traffic.replay import ReplayError, load, parse, write

MOST = 10_000


def read(*lines: str):
    return parse(["time,input,output,prefix", *lines], "day.csv", MOST)


def test_a_row_is_a_time_and_a_request():
    """Seconds, tokens, and the segments that the prompt begins with; what is cached is for the rank to know."""
    assert read("0.0,5300,120,system:500/contract:4700", "0.8,90,15,") == [
        (0.0, Shape(5300, 0, 120, (Segment("system", 500), Segment("contract", 4700)))),
        (0.8, Shape(90, 0, 15)),
    ]


def test_columns_come_in_any_order_and_prefix_may_be_missing():
    """The first line names them."""
    assert parse(["output,time,input", "7,1.5,30"], "x", MOST) == [(1.5, Shape(30, 0, 7))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("soon,10,10,", "day.csv, line 3, column time: 'soon' is not a number of seconds from 0 up"),
        ("-1,10,10,", "column time: '-1' is not"),
        ("nan,10,10,", "column time: 'nan' is not"),
        ("0.5,10,10,", "line 3, column time: 0.5 is before 1.0, the row above; sort the file by time"),
        ("2,0,10,", "column input: '0' is not a whole number of tokens from 1 up"),
        ("2,10,1_0,", "column output: '1_0' is not a whole number"),
        ("2,10,ten,", "line 3, column output: 'ten' is not"),
        ("2,10,10,doc", "line 3, column prefix: 'doc' is not NAME:TOKENS"),
        ("2,10,10,doc:x", "column prefix: 'x' is not a whole number"),
        ("2,10,10,a:6//b:5", "column prefix: '' is not NAME:TOKENS"),
        ("2,10,10,a:6/b:5", "column prefix: its segments have 11 tokens, the whole input 10"),
        ("2,9000,1001,", "column input: 9000 [+] 1001 tokens never fit a rank's 10000"),
        ("2,10,10", "line 3: fewer fields than the 4 of the header"),
        ("2,10,10,,9", "line 3: more fields than the 4 of the header"),
        ('2,10,10,"a', "line 3: not CSV"),
    ],
)
def test_a_bad_row_names_its_line_and_column(line, message):
    """With what was found there and what belongs there."""
    with pytest.raises(ReplayError, match=message):
        read("1.0,10,10,", line)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("time,inputs,output", "day.csv, line 1: unknown column 'inputs'; did you mean input?"),
        ("time,input,output,zzz", "unknown column 'zzz'; the columns are time, input, output, prefix"),
        ("time,input", "line 1: column output is missing"),
        ("time,input,output,input", "line 1: a column is named twice"),
    ],
)
def test_a_bad_header_is_told(header, message):
    """Before any row is looked at."""
    with pytest.raises(ReplayError, match=message):
        parse([header, "1,1,1,1"], "day.csv", MOST)


def test_an_empty_or_unreadable_file_is_an_error(tmp_path):
    """Nothing to send is not a quiet day."""
    empty = tmp_path / "empty.csv"
    empty.write_text("time,input,output\n")
    with pytest.raises(ReplayError, match=r"empty.csv: has no rows"):
        load(empty, MOST)
    empty.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReplayError, match=r"empty.csv: cannot be read"):
        load(empty, MOST)
    with pytest.raises(ReplayError, match=r"gone.csv: cannot be read: .*No such file"):
        load(tmp_path / "gone.csv", MOST)


def test_a_name_that_would_read_as_two_segments_is_not_written():
    """The slash stands between segments."""
    with pytest.raises(ValueError, match="'a/b': / stands between segments; rename it"):
        write([(0.0, Shape(9, 0, 1, (Segment("a/b", 5),)))], io.StringIO())


NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=8)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    prefix = tuple(draw(st.lists(st.builds(Segment, NAMES, st.integers(1, 900)), max_size=3)))
    begins = sum(segment.tokens for segment in prefix)
    return Shape(begins + draw(st.integers(1, 900)), 0, draw(st.integers(1, 900)), prefix)


@given(st.lists(st.tuples(st.floats(0, 1e6), shapes()), min_size=1, max_size=8))
def test_what_is_written_is_read_back(rows):
    """Times to the last bit and names with commas, quotes and line breaks."""
    rows.sort(key=lambda row: row[0])
    file = io.StringIO(newline="")
    write(rows, file)
    assert parse(io.StringIO(file.getvalue(), newline=""), "x", MOST) == rows
