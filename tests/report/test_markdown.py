"""The report for a ticket: the same words as the text report, and foreign text that can be nothing but text."""

import re
from dataclasses import replace
from typing import cast

import pytest

from collector.model import Clock, Engine, Facts, Problem
from diagnose.model import EngineDiagnosis
from diagnose.report.markdown import code, inline, render

HOSTILE = (
    "x](http://evil.example) [click](javascript:alert(1)) ![i](http://evil.example/i.png) <script>alert(1)</script> | a | b | "
    "`tick` ``two`` @everyone #1 www.evil.example me@evil.example {{ 7*7 }} $x$ &lt; \u202eolleh\u202c\r\n# HEALTHY\n| --- |"
)


def _outside_code(text: str) -> str:
    """What a renderer looks into: the text without its code spans (a fence closes at the next run of the same length)."""
    return re.sub(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", text)


def test_the_verdict_comes_first_then_what_to_do(samples: dict[str, EngineDiagnosis]) -> None:
    """The heading answers; the remedy comes before the numbers, flags and expressions are code."""
    text = render(samples["load"])
    assert text.splitlines()[0] == "## LOAD: `context_length_skew` on rank 0, 27% of step time, confidence high (94%)"
    order = ["What to do next", "`--load-balance-method`", "What was read", "### Ranks", "### Evidence", "### Ruled out", "### Missing"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert '- PromQL: `rate(sglang:dp_attention_pairs_total{kind="scheduled",dp_rank="0"}[20s]) / rate(' in text


def test_every_kind_of_verdict_is_one_document(sample: tuple[str, EngineDiagnosis]) -> None:
    """One title, no empty section, a final newline, and a table whose rows all have as many cells as its head."""
    _, diagnosis = sample
    text = render(diagnosis)
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("## ")] == lines[:1]
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not re.search(r"^### .*\n\n(###|\Z)", text, re.MULTILINE)
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(diagnosis.ranks)
    assert len({line.count("|") for line in table}) == 1


def test_of_several_causes_each_culprit_has_its_own(samples: dict[str, EngineDiagnosis]) -> None:
    """Rank 5 is blamed for its host, rank 0 for its contexts; nobody else is marked."""
    rows = [line for line in render(samples["single_point_and_load"]).splitlines() if "culprit:" in line]
    assert [re.findall(r"^\| \*\*(\d)\*\*|`(\w+)`", row) for row in rows] == [
        [("0", ""), ("", "context_length_skew")],
        [("5", ""), ("", "host_cpu_starved")],
    ]


def test_insufficient_says_what_to_turn_on_before_any_number(samples: dict[str, EngineDiagnosis]) -> None:
    """Without a verdict the missing signals come first."""
    text = render(samples["insufficient"])
    assert "not a clean bill of health" in text
    assert text.index("### Problems while reading") < text.index("### Missing") < text.index("### Ranks")


def _hostile(diagnosis: EngineDiagnosis) -> EngineDiagnosis:
    verdict = diagnosis.verdict
    evidence = tuple(replace(item, what=HOSTILE, promql=HOSTILE, unit=HOSTILE, signal=HOSTILE) for item in verdict.evidence)
    return replace(
        diagnosis,
        engine=Engine(
            HOSTILE, HOSTILE, Facts(version=HOSTILE, model=HOSTILE, role=HOSTILE, accelerator=HOSTILE), clock=cast(Clock, HOSTILE)
        ),
        verdict=replace(verdict, cause=HOSTILE, summary=HOSTILE, remedy=HOSTILE, runbook=HOSTILE, would_tell=HOSTILE, evidence=evidence),
        problems=(Problem(HOSTILE, HOSTILE, HOSTILE),),
        notes=(HOSTILE,),
    )


def test_hostile_text_is_inert(samples: dict[str, EngineDiagnosis]) -> None:
    """Outside of code spans no link, image, HTML, mention, reference, address or mathematics; no line and no table cell is added."""
    plain, text = render(samples["load"]), render(_hostile(samples["load"]))
    looked_into = _outside_code(text)
    assert not re.search(r"(?<!\\)[\[\]<>~$&#`]", re.sub(r"^#{2,3} ", "", looked_into, flags=re.MULTILINE))
    assert not re.search(r"://|www\.|@|#\d", looked_into)
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\r\x00-\x09]", text)
    assert [line for line in text.splitlines() if line.startswith("|")][1] == [line for line in plain.splitlines() if line.startswith("|")][
        1
    ]
    assert sum(line.startswith("|") for line in text.splitlines()) == 2 + 8
    assert not re.search(r"^#+ HEALTHY", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("- item", r"\- item"),
        ("+ item", r"\+ item"),
        ("=== not a heading", r"\=== not a heading"),
        ("1. first", r"1\. first"),
        ("7) seventh", r"7\) seventh"),
        ("42.1 ms", "42.1 ms"),
        ("a|b *c* <d>", r"a\|b \*c\* \<d\>"),
        ("see http://h:1/x, please", "see `http://h:1/x`, please"),
        ("(--enable-metrics)", "(`--enable-metrics`)"),
        ("", ""),
    ],
)
def test_text_reads_as_it_was_written(given: str, written: str) -> None:
    """Escapes only where a renderer would obey, code spans where it would link."""
    assert inline(given) == written


@pytest.mark.parametrize(("given", "written"), [("a", "`a`"), ("a`b", "``a`b``"), ("`a``", "``` `a`` ```"), (" a ", "`  a  `"), ("", "")])
def test_a_code_span_holds_any_text(given: str, written: str) -> None:
    """The fence is longer than every run of backquotes inside, by CommonMark's rule; a pad keeps quotes and spaces at the edge."""
    assert code(given) == written


def test_many_ranks_stay_a_page(samples: dict[str, EngineDiagnosis]) -> None:
    """Of 512 ranks the 32 most telling are listed, the culprit among them, and the rest is counted."""
    rows = tuple(replace(samples["load"].ranks[1], rank=r) for r in range(512))
    many = replace(samples["load"], ranks=(replace(rows[0], culprit=True), *rows[1:]))
    text = render(many)
    assert sum(line.startswith("|") for line in text.splitlines()) == 2 + 32
    assert "480 more ranks not shown" in text


def test_no_rank_no_table(samples: dict[str, EngineDiagnosis]) -> None:
    """An engine of which no rank was seen has a sentence in place of a table."""
    assert "No rank was seen." in render(replace(samples["insufficient"], ranks=()))
