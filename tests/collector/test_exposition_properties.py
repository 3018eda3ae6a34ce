"""Generated and damaged pages: the page parser says what prometheus_client's parser says, whatever it parsed before."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from prometheus_client.parser import text_string_to_metric_families

from collector.errors import SourceError
from collector.exposition import Parser
from collector.exposition_text import number, numbers

Plain = tuple[str, dict[str, str], float | str]

CAPTURES = Path(__file__).parents[1] / "captures"
REAL = [
    line + "\n"
    for path in ("sglang-0.5.23/tp8-dp8-ep8-t1.prom", "sglang-0.5.23/tp8-dp8-ep8-t1.openmetrics", "vllm-0.32.0/1.prom")
    for line in (CAPTURES / path).read_text().splitlines()[::40]
]

NAMES = [
    "sglang:num_running_reqs",
    "sglang_num_running_reqs",
    "sglang:num_running_reqs_total",
    "sglang:dp_attention_sync_wait_seconds_sum",
    "sglang:dp_attention_sync_wait_seconds_count",
    "sglang:dp_attention_sync_wait_seconds_bucket",
    "sglang:dp_attention_sync_wait_seconds_created",
    "a",
    "a:b",
    "_",
    "sglang:dp_cooperation_forward_execution_seconds_total",
    "sglang:dp_cooperation_forward_execution_seconds_count",
]
FAMILIES = st.none() | st.lists(st.sampled_from([*NAMES, "sglang:dp_attention_sync_wait_seconds", "b"]), max_size=3)


def plain(samples: Iterable[Any]) -> list[Plain]:
    return [(s.name, dict(s.labels), "NaN" if math.isnan(s.value) else float(s.value)) for s in samples]


def official(page: str) -> list[Plain]:
    """The official samples, named as on the page: only under the type `counter` does that parser change names."""
    page = re.sub(r"^(# TYPE \S+ )counter", r"\1gauge", page, flags=re.MULTILINE)
    return plain(sample for family in text_string_to_metric_families(page) for sample in family.samples)


def official_line(line: bytes) -> list[Plain]:
    try:
        return official(line.decode())
    except ValueError:
        return []


def only(samples: list[Plain], families: list[str] | None) -> list[Plain]:
    if families is None:
        return samples
    names = {(family + suffix).replace(":", "_") for family in families for suffix in ("", "_sum", "_count", "_bucket")}
    return [sample for sample in samples if sample[0].replace(":", "_") in names]


# A page as (what a line says before its value, its value, what comes after): a later scrape has the same first parts and other values.

names = st.sampled_from(NAMES) | st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,50}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(lambda name: not name.startswith("__"))
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
label_values = any_text.map(lambda text: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")) | st.lists(
    st.sampled_from(["\\\\", "\\n", '\\"', "\\t", "{", "}", ",", "=", "#", " ", "  ", "ü", " # {", "} 1", "/"]), max_size=6
).map("".join)
blank = st.sampled_from(["", "", "", " ", "\t "])
values = st.sampled_from(["NaN", "+Inf", "-Inf", "inf", ".2", "5.", "-0", "007", "1e5", "+3", "9007199254740993", "1E-400"]) | st.one_of(
    st.floats().map(repr), st.integers(-(10**25), 10**25).map(str)
)
timestamps = st.sampled_from([*[""] * 8, " 1395066363000", "\t1395066363000", " -5", ' # {t="a } b"} 0.5', ' 17.5 # {t="x"} 2 18.25'])
ends = st.sampled_from(["\n", "\n", "\n", "\r\n", " \n"])


@st.composite
def series(draw: st.DrawFn) -> str:
    pairs = draw(st.dictionaries(label_names, label_values, max_size=4))
    if draw(st.booleans()):
        pairs |= {"engine_type": "unified", "model_name": "deepseek-ai/DeepSeek-V3"}
    name, pad = draw(names), draw(blank)
    if not pairs and draw(st.booleans()):
        return name + draw(st.sampled_from([" ", "\t", "  "]))
    inner = f",{pad}".join(f'{key}{pad}={pad}"{value}"' for key, value in pairs.items())
    comma = draw(st.sampled_from(["", ","])) if pairs else ""
    return draw(blank) + f"{name}{pad}{{{pad}{inner}{pad}{comma}}}" + draw(st.sampled_from([" ", " ", " ", "", "\t", "  "]))


comments = st.one_of(
    st.builds("# TYPE {} {}".format, names, st.sampled_from(["counter", "gauge", "histogram", "summary", "untyped"])),
    st.builds("# HELP {} {}".format, names, st.sampled_from(["Text.", "a 5", "The {number} of 'x' 3", "ü"])),
    st.sampled_from(["", " ", "#", "# EOF", "# free text 5", "#x 1", "  # indented 2"]),
)
lines = st.tuples(series(), values, timestamps, ends) | st.tuples(comments, st.just(""), st.just(""), ends)
pages = st.lists(lines, max_size=12)


def text_of(page: list[tuple[str, str, str, str]]) -> str:
    return "".join(map("".join, page))


@given(pages, FAMILIES, st.data())
@settings(max_examples=150, deadline=None)
def test_generated_pages(page: list[tuple[str, str, str, str]], families: list[str] | None, data: st.DataObject) -> None:
    """Pages, the next scrape of each, and any other page after it give the official samples, whole and selected, cold and warm."""
    parser = Parser(families, max_cached=data.draw(st.sampled_from([1, 3, 1000])))
    later = [(first, data.draw(values) if value else "", last, end) for first, value, last, end in page]
    moved = data.draw(st.permutations(later))
    other = data.draw(pages)
    mixed = [data.draw(st.sampled_from([line, line, *other[:3]])) for line in later]
    for text in map(text_of, (page, page, later, moved, later, mixed, page, other, later)):
        result = parser.parse(text.encode())
        assert plain(result.samples) == only(official(text), families)
        assert repr(result) == repr(Parser(families).parse(text.encode()))
        assert result.problems == () or not text.strip()
        assert len(parser._series) <= parser._max_cached
        assert len(parser._passed) <= parser._max_cached


@given(st.lists(st.tuples(series(), values, timestamps), min_size=1, max_size=5), st.data())
@settings(max_examples=100, deadline=None)
def test_page_without_final_newline(page: list[tuple[str, str, str]], data: st.DataObject) -> None:
    """A page cut in its last line keeps every line before it, and says that it may be cut."""
    text = "\n".join(map("".join, page))
    start = text.rfind("\n") + 1
    cut = text[: data.draw(st.integers(start + 1, len(text)))]
    whole = official(text[:start])
    result = Parser().parse(cut.encode())
    assert plain(result.samples)[: len(whole)] == whole
    assert plain(result.samples)[len(whole) :] in ([], official_line(cut[start:].encode()))
    assert any("newline" in problem or "empty" in problem for problem in result.problems)


@given(
    st.lists(
        st.one_of(st.floats().map(repr), values, st.from_regex(r"[-+]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,3})?", fullmatch=True))
    )
)
@settings(max_examples=150, deadline=None)
def test_numbers_read_together_are_those_read_singly(texts: list[str]) -> None:
    """Numbers read as JSON are the very numbers that Python reads."""
    together = numbers([text.encode() for text in texts])
    assert together is not None
    assert [value + 0.0 for value in together if value == value] == [value for value in map(float, texts) if value == value]
    assert list(map(math.isnan, together)) == [math.isnan(float(text)) for text in texts]


@given(st.lists(st.binary(max_size=8)))
def test_odd_numbers_read_together(texts: list[bytes]) -> None:
    """Whatever stands for the numbers, reading them together finds none that reading them singly does not."""
    singly = [number(text) for text in texts]
    together = numbers(texts)
    assert repr(together) == repr(singly) or together is None
    assert together is not None or None in singly


@given(
    st.lists(st.text('a1{}"=,\\ #_\t.:\r\x0b', max_size=16).map(lambda text: 'a{a="a"}' + text) | st.text('ab1{}"=,\\ #_\t.n', max_size=16))
)
@settings(max_examples=300, deadline=None)
def test_lines_that_are_almost_samples(texts: list[str]) -> None:
    """Of lines made of the signs of the format, each is what the official parser makes of it, or no sample."""
    result = Parser().parse("".join(f"{text}\n" for text in ["z 1", *texts]).encode())
    left = plain(result.samples)[1:]
    for text in texts:
        if left[:1] == official_line(text.encode()) != []:
            left.pop(0)
    assert left == []


damage = st.sampled_from(["keep", "keep", "keep", "delete", "double", "cut", "flip", "join", "insert"])


@given(
    st.lists(st.tuples(st.sampled_from(REAL), damage, st.integers(0, 400), st.binary(min_size=1, max_size=4)), max_size=25),
    FAMILIES,
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_damaged_real_pages(page: list[tuple[str, str, int, bytes]], families: list[str] | None, newline: bool) -> None:
    """Lines that were left alone come out right; a damaged line gives what the official parser makes of it, or nothing."""
    parts: list[bytes] = []
    for original, what, at, junk in page:
        text = original.encode()
        damaged = {
            "keep": text,
            "double": text * 2,
            "cut": text[: at % len(text)] + b"\n",
            "flip": text[: at % len(text)] + junk + text[at % len(text) + 1 :],
            "join": text[:-1],
            "insert": junk + b"\n" + text,
        }
        parts.append(damaged.get(what, b""))
    body = b"".join(parts) if newline else b"".join(parts)[:-1]
    untouched = {line.encode() for line in REAL}
    warm = Parser(families)
    warm.parse("".join(REAL).encode())
    try:
        result = warm.parse(body)
    except SourceError:
        assert body.split(b"\n")[0] + b"\n" not in untouched
        return
    assert repr(result) == repr(Parser(families).parse(body))
    left = plain(result.samples)
    for part in body.split(b"\n"):
        line = part + b"\n"
        expected = only(official_line(line), families)
        if expected and left[:1] == expected:
            left.pop(0)
        else:
            assert not expected or line not in untouched
    assert left == []


@given(st.lists(st.binary(max_size=60)), FAMILIES)
@settings(max_examples=150, deadline=None)
def test_arbitrary_bytes(bodies: list[bytes], families: list[str] | None) -> None:
    """Bytes of any kind raise nothing but SourceError, and are judged alike by a new parser and by one that has seen others."""
    parser = Parser(families)
    for body in bodies:
        try:
            result = parser.parse(body)
        except SourceError:
            continue
        assert repr(result) == repr(Parser(families).parse(body))
        assert plain(result.samples) == [
            sample
            for line in body.split(b"\n")
            for sample in plain(Parser(families).parse(b"z 1\n" + line + b"\n").samples)
            if sample != ("z", {}, 1.0)
        ]
