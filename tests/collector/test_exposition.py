"""The page parser against prometheus_client's own parsers: real pages, odd lines, and the selection of families."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families

from collector.exposition import Parser, Sample
from tests.collector.exposition_pages import NEEDED, PAGES, SGLANG, VLLM, Plain, official, only, parsed, plain

# Real pages


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_whole_real_page(path: Path) -> None:
    """Every sample of a real page comes out as the official parser has it, with nothing to complain about, cold and warm."""
    parser, expected = Parser(), official(path.read_text())
    for _ in range(2):
        result = parser.parse(path.read_bytes())
        assert plain(result.samples) == expected
        assert result.problems == ()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_selected_families_of_a_real_page(path: Path) -> None:
    """Selected families are the official parser's samples with the others left out, cold and warm."""
    parser, expected = Parser(NEEDED), only(official(path.read_text()), NEEDED)
    assert expected
    for _ in range(2):
        assert plain(parser.parse(path.read_bytes()).samples) == expected


def test_openmetrics_page_with_underscores() -> None:
    """On the OpenMetrics page, where ':' became '_', the same families are found, under the names that this page has."""
    text = (SGLANG / "tp8-dp8-ep8-t1.openmetrics").read_text()
    sglang = official((SGLANG / "tp8-dp8-ep8-t1.prom").read_text())
    expected = [(name.replace(":", "_"), labels, value) for name, labels, value in sglang]
    assert plain(parsed(text).samples) == expected
    assert plain(parsed(text, NEEDED).samples) == only(expected, NEEDED)


@pytest.mark.parametrize("families", [None, NEEDED], ids=["whole", "selected"])
def test_one_parser_through_all_pages(families: list[str] | None) -> None:
    """Pages of other engines, versions and orders before it do not change what a page says."""
    parser = Parser(families)
    for path in [*PAGES, *reversed(PAGES), SGLANG / "tp8-dp8-ep8-t1.openmetrics", *PAGES]:
        body = path.read_bytes()
        assert parser.parse(body) == Parser(families).parse(body)


@pytest.mark.parametrize("families", [None, NEEDED], ids=["whole", "selected"])
def test_only_the_numbers_of_an_unchanged_page_are_read(families: list[str] | None) -> None:
    """A page that differs from the one before in its values alone takes the short way, also with NaN among the values."""
    first = (SGLANG / "tp8-dp8-ep8-t1.prom").read_text()
    head = [line.rpartition(" ")[0] for line in first.splitlines()]
    changed = "".join(
        line + "\n" if line.startswith("#") else f"{prefix} {value}\n"
        for line, prefix, value in zip(first.splitlines(), head, ["1.5", "NaN", "3", "1e-07"] * 422, strict=True)
    )
    parser = Parser(families)
    parser.parse(first.encode())
    short = parser._reread(changed.encode())
    assert short is not None
    expected = official(changed)
    assert plain(short) == (expected if families is None else only(expected, families))


# What prometheus_client writes


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    odd = 'a,b "quoted" \\ c}\n{x="1"} # ü'
    counter = Counter("sglang:steps", "Steps.", ["model_name"], registry=made)
    counter.labels(odd).inc(3, exemplar={"trace_id": "a b"})
    gauge = Gauge("sglang:num_running_reqs", "Running # {requests} 5", ["model_name", "dp_rank"], registry=made)
    for rank, value in enumerate([7, math.nan, math.inf, -math.inf, 0.1 + 0.2]):
        gauge.labels(odd, rank).set(value)
    histogram = Histogram("sglang:wait_seconds", "Wait.", registry=made)
    histogram.observe(0.3, exemplar={"trace_id": "a } b"})

    class Stamped:
        def collect(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
            gauge = GaugeMetricFamily("sglang:stamped", "With timestamps.", labels=["dp_rank"])
            for rank in range(3):
                gauge.add_metric([str(rank)], 0.5 + rank, timestamp=1395066363.5)
            yield gauge

    made.register(Stamped())
    return made


@pytest.mark.parametrize("families", [None, ["sglang:num_running_reqs", "sglang:stamped", "sglang:steps_total"]], ids=["whole", "selected"])
def test_text_page_of_prometheus_client(families: list[str] | None) -> None:
    """A 0.0.4 page with odd labels, non-finite values and timestamps gives the official samples."""
    page = generate_latest(registry()).decode()
    expected = official(page)
    result = parsed(page, families)
    assert plain(result.samples) == (expected if families is None else only(expected, families))
    assert result.problems == ()


@pytest.mark.parametrize("escaping", ["underscores", "allow-utf-8"])
def test_openmetrics_page_of_prometheus_client(escaping: str) -> None:
    """An OpenMetrics page with exemplars, timestamps and '# EOF' gives the samples of the official OpenMetrics parser."""
    page = openmetrics_latest(registry(), escaping).decode()
    result = parsed(page)
    assert result.problems == ()
    if escaping == "allow-utf-8":  # with underscores the official parser refuses what the official encoder wrote
        assert plain(result.samples) == plain(sample for family in openmetrics_families(page) for sample in family.samples)
    names = ["sglang:num_running_reqs", "sglang:stamped", "sglang:steps_total", "sglang:wait_seconds"]
    assert len(parsed(page, names).samples) == len([s for s in result.samples if not s.name.endswith("_created")])


# Odd lines that are right


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a 1", ("a", {}, 1.0)),
        ("a{} 1", ("a", {}, 1.0)),
        ("a{ } 1", ("a", {}, 1.0)),
        ("a .2", ("a", {}, 0.2)),
        ("a\t1", ("a", {}, 1.0)),
        ("  a   1  ", ("a", {}, 1.0)),
        ("a 1\r", ("a", {}, 1.0)),
        ('a{b="c"}1', ("a", {"b": "c"}, 1.0)),
        ('a {b="c"} 1', ("a", {"b": "c"}, 1.0)),
        ('a{b="c",} 1', ("a", {"b": "c"}, 1.0)),
        ('a{ b = "c" , d = "" } 1', ("a", {"b": "c", "d": ""}, 1.0)),
        ('a{b="c"} 1 1395066363000', ("a", {"b": "c"}, 1.0)),
        ('a{b="c"} 1\t1395066363000', ("a", {"b": "c"}, 1.0)),
        ("a 1 1395066363000", ("a", {}, 1.0)),
        ("a 1 -3", ("a", {}, 1.0)),
        ("a -Inf", ("a", {}, -math.inf)),
        ("a 17592186044416", ("a", {}, 17592186044416.0)),
        ('a_total 1 # {t="x y"} 0.5 1395066363.1', ("a_total", {}, 1.0)),
        ('a_bucket{le="+Inf"} 7 1395066363 # {t="} 9"} 0.5', ("a_bucket", {"le": "+Inf"}, 7.0)),
        (r'a{b="\\\"\n\t,} 2"} 1', ("a", {"b": '\\"\n\\t,} 2'}, 1.0)),
        ('a{b="model with spaces, commas # ü"} 1', ("a", {"b": "model with spaces, commas # ü"}, 1.0)),
        ('{"a.b",c="d"} 1', ("a.b", {"c": "d"}, 1.0)),
        ('{"a.b"} 1', ("a.b", {}, 1.0)),
        ('a{"b.c"="d"} 1', ("a", {"b.c": "d"}, 1.0)),
    ],
)
def test_odd_line(line: str, expected: Plain) -> None:
    """An unusual but legal line means what the official parser says, with every family asked for and with its own."""
    page = f"# TYPE z gauge\nz 0\n{line}\nz 2\n"
    around = [("z", {}, 0.0), expected, ("z", {}, 2.0)]
    assert official(page) == around
    parser = Parser()
    for _ in range(2):
        assert plain(parser.parse(page.encode()).samples) == around
    assert plain(parsed(page, [expected[0]]).samples) == [expected]
    assert parsed(page, ["z"]).samples == [Sample("z", {}, 0.0), Sample("z", {}, 2.0)]


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a b",
        "a+5",
        "a 1_000",
        "a 0x10",
        "a 1 2 3",
        "a 1 x",
        "a 1 2_0",
        "3a 1",
        "a-b 1",
        "a{b=c} 1",
        'a{b="c} 1',
        'a{b="c" d="e"} 1',
        'a{b="c",,d="e"} 1',
        'a{b="c",b="d"} 1',
        'a{__name__="b"} 1',
        'a{"b"} 1',
        "a{b} 1",
        '{b="c"} 1',
        'a{b="c"}',
        'a{b="c"} 1 # {t="x"}',
        'a{b="c"} 1 # {t="x"} y',
        "a {count:1,sum:2,schema:3}",
        "per-launch expert imbalance (max(M_e) over mean rows per expert)",
        "\x00\x01",
    ],
)
def test_line_that_is_no_sample(line: str) -> None:
    """A line that is no sample is reported with its number, and costs no other line."""
    page = f"# TYPE z gauge\nz 0\n{line}\nz 2\n"
    parser = Parser()
    for _ in range(2):
        result = parser.parse(page.encode())
        assert plain(result.samples) == [("z", {}, 0.0), ("z", {}, 2.0)]
        assert len(result.problems) == 1
        assert result.problems[0].startswith("line 3 is not a sample: ")
    assert parsed(page, ["z"]).samples == result.samples


@pytest.mark.parametrize("line", ['a-b{c="d"} 1', "a 1 x 2", 'a{,b="c"} 1', '{__name__="a"} 1', "a 1\xa0"])
def test_malformed_line_that_the_official_parser_lets_pass(line: str) -> None:
    """A few malformed lines that the official parser takes for samples are reported instead."""
    assert len(official(line)) == 1
    result = parsed(f"z 1\n{line}\n")
    assert plain(result.samples) == [("z", {}, 1.0)]
    assert result.problems[0].startswith("line 2 is not a sample: ")


def test_what_is_reported_of_a_selection() -> None:
    """Among selected families a line that begins as no sample's does is reported; one that begins as another family's is not looked at."""
    lines = ["per-launch expert imbalance 1", "3a 1", 'a{b="c} 1', 'sglang:other{dp_rank="0",engine_type="unified} 1', "other x"]
    lines.append("sglang:other*" + "x" * 40 + " 1")
    parser = Parser(["a"])
    for _ in range(2):
        problems = parser.parse("".join(line + "\n" for line in lines).encode()).problems
        assert [problem[:6] for problem in problems] == ["line 1", "line 2", "line 3", "line 6"]


def test_label_that_is_not_utf8() -> None:
    """A label value that is not UTF-8 costs its own line; a comment may be anything."""
    result = Parser().parse(b'# HELP a \xff\na{b="\xff"} 1\na{b="c"} 2\n')
    assert plain(result.samples) == [("a", {"b": "c"}, 2.0)]
    assert result.problems == (r"""line 2 is not a sample: 'a{b="\xff"} 1'""",)


def test_counter_keeps_its_name() -> None:
    """A counter without `_total` is named as the page names it, though the official 0.0.4 parser renames it."""
    page = "# TYPE a counter\na 1\n"
    assert [name for name, _, _ in official(page)] == ["a_total"]
    assert plain(parsed(page).samples) == [("a", {}, 1.0)]


# Selection


def test_names_that_begin_alike() -> None:
    """`x` is not `x_total`, `x_created` or `x_bucket_total`; a histogram's parts come with it, or one alone when asked by its name."""
    names = ["x", "x_total", "x_created", "x_sum", "x_count", "x_bucket", "x_buckets", "x_sum_total", "xx", "sglang:x"]
    page = "".join(f'{name}{{dp_rank="{rank}",engine_type="unified"}} {rank}\n' for name in names for rank in range(2))
    assert [s.name for s in parsed(page, ["x"]).samples[::2]] == ["x", "x_sum", "x_count", "x_bucket"]
    assert [s.name for s in parsed(page, ["x_sum"]).samples[::2]] == ["x_sum"]
    assert [s.name for s in parsed(page, ["x_total"]).samples[::2]] == ["x_total"]
    assert parsed(page, ["x_to"]).samples == parsed(page, []).samples == []


@pytest.mark.parametrize("length", range(36, 46))
def test_names_longer_than_the_part_that_is_compared(length: int) -> None:
    """Families are told apart wherever in the line their names begin to differ."""
    stem = "sglang:" + "x" * (length - 7)
    page = "".join(f'{name}{{dp_rank="0"}} 1\n{name} 2\n' for name in (stem, stem + "_a", stem + "_b", stem[:-1]))
    parser = Parser([stem + "_a"])
    for _ in range(2):
        assert plain(parser.parse(page.encode()).samples) == [(stem + "_a", {"dp_rank": "0"}, 1.0), (stem + "_a", {}, 2.0)]


@pytest.mark.parametrize("asked", ["sglang:num_running_reqs", "sglang_num_running_reqs"])
def test_colon_and_underscore_are_the_same(asked: str) -> None:
    """Either spelling finds both, named as the page names them."""
    page = "# TYPE sglang:num_running_reqs gauge\nsglang_num_running_reqs 1\nsglang:num_running_reqs 2\nsglang:num_running_reqs_total 3\n"
    assert [s.name for s in parsed(page, [asked]).samples] == ["sglang_num_running_reqs", "sglang:num_running_reqs"]


def test_samples_wherever_they_stand() -> None:
    """Concatenated pages: repeated TYPE lines, duplicate series and samples inside another family's block are all kept, in order."""
    one = (SGLANG / "tp4-dp2-ep4.prom").read_text()
    stray = 'sglang:num_running_reqs{dp_rank="9"} 4\n'
    half = one.index("# HELP sglang:dp_attention_tokens_total")
    page = one[:half] + stray + one[half:] + one + (VLLM / "1.prom").read_text() + stray
    expected = only(official(page), NEEDED)
    parser = Parser(NEEDED)
    for _ in range(2):
        assert plain(parser.parse(page.encode()).samples) == expected
    assert expected.count(("sglang:num_running_reqs", {"dp_rank": "9"}, 4.0)) == 2
