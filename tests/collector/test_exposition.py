"""The page parser against prometheus_client's own parsers, real pages, odd pages from the field, and bounds."""

from __future__ import annotations

import gzip
import json
import math
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from collector.errors import SourceError
from collector.exposition import Exposition, Parser, Sample

TESTS = Path(__file__).parents[1]
SGLANG = TESTS / "captures" / "sglang-0.5.23"
VLLM = TESTS / "captures" / "vllm-0.32.0"
CASES = TESTS / "field_cases"
PAGES = sorted([*SGLANG.glob("*.prom"), *VLLM.glob("*.prom")])

NEEDED = [
    "sglang:dp_attention_tokens_total",
    "sglang:dp_attention_sync_wait_seconds_sum",
    "sglang:dp_attention_sync_wait_seconds_count",
    "sglang:scheduler_stage_seconds_total",
    "sglang:num_running_reqs",
    "sglang:eplb_balancedness",
    "sglang:eplb_gpu_physical_count",
    "vllm:num_requests_running",
    "vllm:time_to_first_token_seconds",
]

Plain = tuple[str, dict[str, str], float | str]


def plain(samples: Iterable[Any]) -> list[Plain]:
    """Samples as values that compare equal when they mean the same (NaN equals NaN)."""
    return [(s.name, dict(s.labels), "NaN" if math.isnan(s.value) else float(s.value)) for s in samples]


def official(page: str) -> list[Plain]:
    return plain(sample for family in text_families(page) for sample in family.samples)


def only(samples: list[Plain], families: list[str]) -> list[Plain]:
    """The samples of these families, with ':' and '_' taken for the same."""
    names = {(family + suffix).replace(":", "_") for family in families for suffix in ("", "_sum", "_count", "_bucket")}
    return [sample for sample in samples if sample[0].replace(":", "_") in names]


def parsed(page: str, families: list[str] | None = None) -> Exposition:
    return Parser(families).parse(page.encode())


def case(name: str) -> bytes:
    return (CASES / name).read_bytes()


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


# Field cases: expectations are those at the head of each file


def test_request_skew_pair() -> None:
    """27/5/0/0 after 8/8/8/8, and engines whose queue was not on the page are absent rather than 0."""
    parser = Parser(["vllm:num_requests_running", "vllm:num_requests_waiting"])
    before = parser.parse(case("03-vllm48808-dp4-request-skew-t0.txt"))
    after = parser.parse(case("03-vllm48808-dp4-request-skew-t1.txt"))
    assert [s.value for s in before.samples] == [8.0] * 4 + [0.0] * 4
    assert {s.labels["engine"]: s.value for s in after.samples if s.name.endswith("running")} == {"0": 27.0, "1": 5.0, "2": 0.0, "3": 0.0}
    assert [s.labels["engine"] for s in after.samples if s.name.endswith("waiting")] == ["0"]


def test_samples_without_type_lines() -> None:
    """A page without one TYPE line: nothing runs, six wait, the cache is empty."""
    result = Parser(["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]).parse(
        case("12-vllm-metal479-livelock.txt")
    )
    assert {s.name: s.value for s in result.samples} == {
        "vllm:num_requests_running": 0.0,
        "vllm:num_requests_waiting": 6.0,
        "vllm:kv_cache_usage_perc": 0.0,
    }
    assert {s.labels["model_name"] for s in result.samples} == {"mlx-community/Qwen3.6-27B-5bit"}


def test_mixed_label_schemas() -> None:
    """Series with and without `dp_rank`, or with an empty one, are kept apart."""
    samples = Parser().parse(case("17-smg805-mixed-label-schemas.txt")).samples
    assert [s.labels.get("dp_rank") for s in samples] == [None, "0", "1", ""]
    assert [s.labels["worker_addr"] for s in samples][:2] == ["http://worker-a:30000", "http://worker-b:30000"]


def test_nan_gauge() -> None:
    """NaN is a NaN sample, and every other series of the page is still there."""
    result = Parser().parse(case("18-aiperf1025-nan-gauge.txt"))
    assert math.isnan(result.samples[0].value)
    assert [s.value for s in result.samples[1:]] == [0.62, 3.0]
    assert result.problems == ()


def test_priority_labels() -> None:
    """The aggregate has priority "", and the bucket of the smallest 64-bit integer is a label like any other."""
    samples = Parser(["sglang:num_running_reqs"]).parse(case("19-sglang-priority-aggregate-label.txt")).samples
    assert {s.labels["priority"]: s.value for s in samples} == {"": 14.0, "-9223372036854775808": 0.0, "-1": 0.0, "0": 14.0}


def test_ranks_in_any_order() -> None:
    """Eight tp ranks in the page's order, none with a dp rank; the model name is a path."""
    samples = Parser(["sglang:kv_cache_memory_usage_gb"]).parse(case("21-sglang37852-kvmem-zero.txt")).samples
    assert [s.labels["tp_rank"] for s in samples] == list("60352174")
    assert {(s.value, s.labels["model_name"], s.labels.get("dp_rank")) for s in samples} == {(0.0, "/models/DeepSeek-V4-Flash", None)}


def test_gateway_page() -> None:
    """A gateway's page (underscores, blank lines, integers) answers to SGLang's names."""
    families = ["sglang:cuda_graph_passes_total", "sglang:realtime_tokens_total", "sglang:cache_hit_rate"]
    result = Parser(families).parse(case("23-smg813-colon-became-underscore.txt"))
    assert [(s.name, s.value) for s in result.samples] == [
        ("sglang_cuda_graph_passes_total", 311.0),
        ("sglang_cache_hit_rate", 0.0),
        ("sglang_realtime_tokens_total", 55.0),
    ]
    assert {s.labels["worker_addr"] for s in result.samples} == {"grpc://127.0.0.1:8001"}
    assert result.problems == ()


def test_log_lines_among_samples() -> None:
    """Six lines of a printed table are reported by their numbers; both samples are kept."""
    result = Parser().parse(case("26-kekzl1741-moe-expert-imbalance.txt"))
    assert [s.value for s in result.samples] == [7.190123, 32.0]
    assert [int(problem.split()[1]) for problem in result.problems] == [4, 5, 6, 7, 8, 9]
    assert "per-launch expert imbalance" in result.problems[0]


def test_aborted_requests_page() -> None:
    """157 of 217 requests were aborted and none runs."""
    samples = Parser(["sglang:num_requests_total", "sglang:num_aborted_requests_total", "sglang:num_running_reqs"]).parse(
        case("29-sglang7944-aborts-dominate.txt")
    )
    assert [s.value for s in samples.samples] == [217.0, 157.0, 0.0]


@pytest.mark.parametrize("path", sorted(CASES.glob("*.log")), ids=lambda path: path.stem)
def test_log_file_instead_of_a_page(path: Path) -> None:
    """A log has no samples that a diagnosis would ask for, and what is wrong with it fits on a screen."""
    assert Parser(NEEDED).parse(path.read_bytes()).samples == []
    assert 1 <= len(Parser().parse(path.read_bytes()).problems) <= 9


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_json_file_instead_of_a_page(path: Path) -> None:
    """JSON, a list or an object, is refused as such."""
    with pytest.raises(SourceError, match="is JSON, not a metrics page"):
        Parser().parse(path.read_bytes())


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
