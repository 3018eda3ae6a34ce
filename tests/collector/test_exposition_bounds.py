"""What is no page or not a whole one, and how much a page may cost whatever it holds."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest

from collector.errors import SourceError
from collector.exposition import Exposition, Parser, Sample
from tests.collector.exposition_pages import SGLANG, official, only, parsed, plain

# Not a page, or not a whole one


@pytest.mark.parametrize(
    ("body", "seen"),
    [
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "HTML"),
        (b"\n\n  <html>\n", "HTML"),
        (b"{}", "JSON"),
        (b'{"loads": []}', "JSON"),
        (b'{\n  "detail" : "Not Found"\n}', "JSON"),
        (b"[]", "JSON"),
        (gzip.compress(b"a 1\n", mtime=0), "gzip"),
        (b"\x28\xb5\x2f\xfd\x04\x00a 1\n", "binary"),
        (b"\xcf\x01\n\x19go_gc_duration_seconds\x12\x1cA summary", "binary"),
        ("a 1\n".encode("utf-16-le"), "binary"),
    ],
)
def test_what_is_no_page_is_named(body: bytes, seen: str) -> None:
    """A body that cannot be a metrics page raises, with what it is, how it begins, and what to do next."""
    with pytest.raises(SourceError, match=f"the body is {seen}, not a metrics page: it begins '.*'; ask"):
        Parser().parse(body)


def test_quoted_name_is_not_json() -> None:
    """A page that begins with a quoted metric name is a page."""
    assert plain(parsed('{"a.b","c"="d"} 1\n').samples) == [("a.b", {"c": "d"}, 1.0)]


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\n"])
def test_empty_page(body: bytes) -> None:
    """An empty page has no samples and says so."""
    assert Parser(["a"]).parse(body) == Exposition([], ("the page is empty: check that the engine's metrics are turned on",))


def test_page_without_final_newline() -> None:
    """The last line counts, as the official parser has it, but the page may have been cut."""
    page = "a 1\na 12"
    result = parsed(page)
    assert plain(result.samples) == official(page)
    assert result.problems == ("the page does not end with a newline: it may be cut off, and its last number with it",)


def test_page_that_goes_on_where_the_one_before_ended() -> None:
    """One more line, without its newline, is seen."""
    parser = Parser()
    parser.parse(b"a 1\n")
    assert plain(parser.parse(b"a 1\na 12").samples) == [("a", {}, 1.0), ("a", {}, 12.0)]


def test_line_in_the_place_of_another() -> None:
    """A sample asked for is found where the page before had one that was passed over, and the other way round."""
    parser, asked, other = (
        Parser(["asked"]),
        *(f'{name}{{engine_type="unified",model_name="m",dp_rank="0"}} 1\n' for name in ("asked", "other")),
    )
    for page in (
        asked + other,
        other + asked,
        other + other,
        asked + asked,
        asked + "#" * 60 + "\n",
        "#" * 60 + "\n" + asked,
        other + "\n",
    ):
        assert len(parser.parse(page.encode()).samples) == page.count("asked")


def test_truncated_page() -> None:
    """Cut anywhere, a page keeps its complete lines and says that it may be cut."""
    body = (SGLANG / "tp4-dp2-ep4.prom").read_bytes()[:6000]
    whole = Parser().parse(body[: body.rindex(b"\n") + 1]).samples
    parser = Parser()
    for end in range(body.rindex(b"\n") + 2, len(body) + 1):
        result = parser.parse(body[:end])
        assert result.samples[: len(whole)] == whole
        assert "may be cut off" in result.problems[-1]


# Bounds


def test_page_that_is_too_large() -> None:
    """A page over the limit raises with its size and the limit."""
    assert Parser(max_bytes=4).parse(b"a 1\n").samples == [Sample("a", {}, 1.0)]
    with pytest.raises(SourceError, match="has 5 bytes, and the limit is 4"):
        Parser(max_bytes=4).parse(b"a 10\n")


def test_page_with_too_many_samples() -> None:
    """The first samples are kept, and where reading stopped is said; samples not asked for do not count."""
    page = "".join(f"a {n}\nb {n}\n" for n in range(100))
    result = Parser(max_samples=10).parse(page.encode())
    assert plain(result.samples) == official(page)[:10]
    assert result.problems == ("the page has more than 10 samples: line 11 and what follows were not read",)
    assert len(Parser(["a"], max_samples=100).parse(page.encode()).samples) == 100


@pytest.mark.parametrize("families", [None, ["a", "c"]], ids=["whole", "selected"])
def test_memory_is_bounded_under_growing_cardinality(families: list[str] | None) -> None:
    """Ever new series fill what is remembered up to its bound, and the samples stay right."""
    parser = Parser(families, max_cached=50)
    for round_ in range(20):
        page = "".join(
            f'# {name} {round_} {n}\n{name}{{id="{round_ * 17 + n}",some_long_label="x"}} {n}\n' for n in range(40) for name in "abc"
        )
        expected = official(page)
        assert plain(parser.parse(page.encode()).samples) == (expected if families is None else only(expected, families))
        assert len(parser._series) <= 50
        assert len(parser._passed) <= 50
        assert parser._shape is None or parser._shape.lines <= 50


def test_long_series_are_not_remembered() -> None:
    """A series of many kilobytes is read, but its text is not kept."""
    parser = Parser()
    page = f'a{{b="{"x" * 100_000}"}} 1\n'
    parser.parse(page.encode())
    assert plain(parser.parse(page.encode()).samples) == official(page)
    assert not parser._series


@pytest.mark.parametrize(
    "body",
    [
        b'a{b="' + rb"\"" * 1_000_000,
        b'a{b="' + rb"\\" * 1_000_000 + b'"',
        b"a{" + b'b="c",' * 300_000,
        b"a{" + b'"",' * 500_000 + b"} 1",
        b"a" * 2_000_000,
        b" " * 2_000_000 + b"a",
        b"a" + b" " * 2_000_000 + b"b",
        b"a 1" + b" # {}" * 400_000,
        b"{" + b" " * 2_000_000,
        b"{" * 2_000_000,
        b"a 1\t" * 500_000,
    ],
    ids=range(11),
)
def test_hostile_line(body: bytes) -> None:
    """A line of megabytes is refused in linear time (in quadratic time this test would not end), and shown in a few words."""
    for families in (None, ["a"]):
        result = Parser(families).parse(b"z 1\n" + body + b"\na 2\n")
        assert result.samples[-1] == Sample("a", {}, 2.0)
        assert sum(map(len, result.problems)) < 500


@pytest.mark.parametrize("line", [b"\n", b"#\n", b"# a\n", b"a-\n", b"a\n", b"b 1\n"])
def test_page_of_very_many_short_lines(line: bytes) -> None:
    """Half a million lines that hold nothing are got over, with few words."""
    parser = Parser(["a"])
    result = parser.parse(line * 500_000)
    assert result.samples == []
    assert len(result.problems) <= 10
    assert len(parser._series) <= 1


def test_memory_for_ignored_lines() -> None:
    """The lines of a page that hold no sample asked for take no memory, however many they are."""
    parser, body = Parser(["a"], max_cached=100), b"# a\nb 1\n" * 100_000
    parser.parse(body)
    tracemalloc.start()
    try:
        parser.parse(body)
        assert tracemalloc.get_traced_memory()[1] < 100_000  # less than a byte a line
    finally:
        tracemalloc.stop()


def test_labels_cannot_be_changed() -> None:
    """Labels are shared between pages, so a reader cannot write to them."""
    sample = parsed('a{b="c"} 1\n').samples[0]
    with pytest.raises(TypeError):
        sample.labels["b"] = "d"  # type: ignore[index]
    assert json.dumps(dict(sample.labels)) == '{"b": "c"}'
