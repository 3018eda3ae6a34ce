"""What a person reads: the verdict first, nothing green that is not healthy, nothing that a terminal would obey."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from collector.model import Clock, Engine, Facts, Problem
from diagnose.model import Class, EngineDiagnosis, Missing, NoData, RuleOutcome, Severity
from diagnose.report import markdown
from diagnose.report.json import to_json
from diagnose.report.text import confidence, headline, ranks_in_words, render

GOLDEN = Path(__file__).parent / "golden"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "evil\x1b[2J\x1b]0;owned\x07\r\n\tHEALTHY: all is well\u202e\u2028[bold red]x[/] \x9b31m\u200b\x00"


def test_golden(sample: tuple[str, EngineDiagnosis]) -> None:
    """Each kind of verdict reads exactly as recorded (UPDATE_GOLDEN=1 rewrites the records)."""
    name, diagnosis = sample
    path = GOLDEN / f"{name}.txt"
    text = render(diagnosis, colour=False)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_stale_golden(samples: dict[str, EngineDiagnosis]) -> None:
    """Every record belongs to a kind of verdict."""
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(samples)


def test_the_verdict_comes_first_then_what_to_do(samples: dict[str, EngineDiagnosis]) -> None:
    """The first line answers; the remedy comes before the table, the table before the evidence."""
    text = render(samples["load"], colour=False)
    first = text.splitlines()[0]
    assert first == "LOAD: context_length_skew on rank 0, 27% of step time, confidence high (94%)"
    order = ["What to do next", "--load-balance-method total_tokens", "Ranks", "<- culprit", "Evidence", "PromQL:", "Ruled out", "Missing"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_the_culprit_is_marked_and_only_the_culprit(samples: dict[str, EngineDiagnosis]) -> None:
    """One row carries the mark, front and back, without any colour."""
    marked = [line for line in render(samples["single_point_and_load"], colour=False).splitlines() if "<- culprit" in line]
    assert len(marked) == 1
    assert re.match(r">\s+5 ", marked[0])


def test_evidence_can_be_checked(samples: dict[str, EngineDiagnosis]) -> None:
    """Each number stands with what it was held against, its unit, its rank and one line of PromQL to paste."""
    text = render(samples["load"], colour=False, width=300)
    assert "attention_pairs of rank 0: 229,376 pairs/step, expected 32,768 pairs/step, limit 49,152 pairs/step" in text
    assert 'PromQL: rate(sglang:dp_attention_pairs_total{kind="scheduled",dp_rank="0"}[20s]) / rate(' in text


def test_a_finding_without_a_rank_says_so_and_what_would_tell(samples: dict[str, EngineDiagnosis]) -> None:
    """No rank is invented; the report names the observation that would settle it."""
    text = render(samples["structural_no_rank"], colour=False)
    assert "on no single rank" in text.splitlines()[0]
    assert "no rank can be named from these signals" in text
    assert "What would tell: per-rank expert load" in text
    assert "<- culprit" not in text


def test_what_one_flag_brings_stands_together(samples: dict[str, EngineDiagnosis]) -> None:
    """One restart of the engine is one item, whatever it brings."""
    text = render(samples["insufficient"], colour=False, width=300)
    brings = "sync_wait (half of the host wait), steps_active (the group's step count)"
    assert f"- start SGLang with SGLANG_ENABLE_METRICS_DP_ATTENTION=1: brings {brings}" in text


def test_healthy_is_calm(samples: dict[str, EngineDiagnosis]) -> None:
    """A healthy engine needs nothing done, and still says which rules could not look."""
    text = render(samples["healthy"], colour=False)
    assert text.startswith("HEALTHY: no rank holds the others back")
    assert "Nothing." in text
    assert "1 could not answer" in text
    assert "culprit" not in text


def test_insufficient_is_not_healthy(samples: dict[str, EngineDiagnosis]) -> None:
    """Without evidence there is no verdict, no confidence, and first of all what to turn on."""
    text = render(samples["insufficient"], colour=False)
    assert text.startswith("INSUFFICIENT EVIDENCE: no verdict\n")
    assert "not a clean bill of health" in text
    assert text.index("Missing, and how to turn it on") < text.index("Ranks")
    assert text.index("Problems while reading") < text.index("Missing, and how to turn it on")
    assert "confidence" not in text
    assert "7 of 8 ranks" in text
    assert "not observed on any rank: wait ms/step, late ms" in text


def test_a_slow_group_without_a_class_is_a_finding_that_claims_no_class(samples: dict[str, EngineDiagnosis]) -> None:
    """That something is wrong is said with its cost; that nobody can be blamed yet is said as plainly."""
    text = render(samples["insufficient_group_slow"], colour=False, width=200)
    assert text.startswith(
        "INSUFFICIENT EVIDENCE: whole_group_slow on no single rank, 31% (25% to 35%) of step time, confidence moderate (72%)"
    )
    assert "does not say whether a rank, the load or the layout is to blame" in text
    assert "no rank can be named from these signals" in text


def test_partial_data_and_notes_are_said(samples: dict[str, EngineDiagnosis]) -> None:
    """What went wrong while reading stands in the report, with the next step."""
    text = render(samples["single_point_and_load"], colour=False)
    assert "http://node1:30000/metrics: no reply within 5 s, 3 of 4 times; rank 6 and 7 are partly missing" in text
    assert "a counter was reset" in text
    assert "Also found\n  - LOAD: context_length_skew on rank 0" in text


def test_colour_changes_nothing_but_colour(sample: tuple[str, EngineDiagnosis]) -> None:
    """With the colours taken out, both renderings are the same text."""
    _, diagnosis = sample
    coloured = render(diagnosis, colour=True)
    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured) == render(diagnosis, colour=False)


@pytest.mark.parametrize(("name", "green"), [("healthy", True), ("insufficient", False), ("load", False), ("outside", False)])
def test_only_healthy_is_green(samples: dict[str, EngineDiagnosis], name: str, green: bool) -> None:
    """Grey is never green: green ink appears in a healthy report alone."""
    assert ("\x1b[32" in render(samples[name], colour=True)) is green


def test_rendering_is_deterministic(sample: tuple[str, EngineDiagnosis]) -> None:
    """The same diagnosis gives the same text, byte for byte."""
    _, diagnosis = sample
    assert render(diagnosis, colour=True) == render(diagnosis, colour=True)


def test_lines_keep_to_the_width_but_are_never_cut(samples: dict[str, EngineDiagnosis]) -> None:
    """Sentences wrap at the width; only PromQL and the table, which must stay whole, may pass it."""
    lines = render(samples["load"], colour=False, width=60).splitlines()
    long = [line for line in lines if len(line) > 60]
    assert all("PromQL" in line or "://" in line or re.match(r"[> ] +(\d+|rank) ", line) for line in long)


def test_hostile_strings_cannot_touch_the_terminal(samples: dict[str, EngineDiagnosis]) -> None:
    """Wherever foreign text lands, control characters become visible, lines cannot be forged, markup stays literal."""
    base = samples["single_point_and_load"]
    verdict = replace(
        base.verdict,
        cause=HOSTILE,
        summary=HOSTILE,
        remedy=HOSTILE,
        would_tell=HOSTILE,
        runbook="https://" + HOSTILE,
        missing=(Missing(HOSTILE, HOSTILE, HOSTILE),),
        evidence=tuple(replace(e, signal=HOSTILE, what=HOSTILE, unit=HOSTILE, promql=HOSTILE) for e in base.verdict.evidence),
    )
    hostile = replace(
        base,
        engine=Engine(HOSTILE, HOSTILE, Facts(HOSTILE, HOSTILE, HOSTILE, HOSTILE), cast(Clock, HOSTILE)),
        verdict=verdict,
        outcomes=(RuleOutcome(HOSTILE, NoData((HOSTILE,), HOSTILE)),),
        problems=(Problem(HOSTILE, HOSTILE, HOSTILE),),
        notes=(HOSTILE,),
    )
    text = render(hostile, colour=False)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\u2028]", text)
    assert not any(line.startswith("HEALTHY") for line in text.splitlines())
    assert "evil\\x1b[2J" in text
    assert "[bold red]x[/]" in text


def test_a_very_long_name_is_cut(samples: dict[str, EngineDiagnosis]) -> None:
    """A model name of a megabyte does not bury the verdict."""
    huge = replace(samples["load"], engine=Engine("x" * 1_000_000, "sglang"))
    assert len(render(huge, colour=False)) < 10_000


def test_a_large_group_shows_the_telling_ranks(samples: dict[str, EngineDiagnosis]) -> None:
    """Above a screenful the culprit and the latest ranks stay, the rest is counted."""
    row = samples["load"].ranks[1]
    rows = tuple(replace(row, rank=r, culprit=r == 300, lateness=0.001 if r == 200 else 0.0) for r in range(320))
    text = render(replace(samples["load"], ranks=rows), colour=False)
    assert re.search(r"^>\s+300 ", text, re.MULTILINE)
    assert re.search(r"^\s+200 ", text, re.MULTILINE)
    assert "288 more ranks not shown" in text


def test_no_rank_seen(samples: dict[str, EngineDiagnosis]) -> None:
    """An engine without any rank is reported, not crashed on."""
    assert "no rank was seen" in render(replace(samples["insufficient"], ranks=()), colour=False)


@pytest.mark.parametrize(("value", "words"), [(0.999, "high (over 99%)"), (0.9, "high (90%)"), (0.7, "moderate (70%)"), (0.3, "low (30%)")])
def test_confidence_in_words_and_number(value: Any, words: str) -> None:
    """A word for the reader, a number for the record, and never certainty."""
    assert confidence(value) == words


@pytest.mark.parametrize(
    ("ranks", "words"), [((), "no single rank"), ((3,), "rank 3"), ((1, 4), "ranks 1 and 4"), ((0, 1, 2), "ranks 0, 1 and 2")]
)
def test_ranks_in_words(ranks: tuple[int, ...], words: str) -> None:
    """Ranks read as a sentence."""
    assert ranks_in_words(ranks) == words


def test_many_ranks_are_counted() -> None:
    """A whole node is not listed rank by rank in the headline."""
    assert ranks_in_words(tuple(range(64))) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 56 more"


def test_an_unknown_cause_and_cost_are_said(samples: dict[str, EngineDiagnosis]) -> None:
    """A class without a named cause or a known cost still makes a sentence."""
    verdict = replace(samples["load"].verdict, cause=None, share=None, klass=Class.SINGLE_POINT, severity=Severity.NOTE)
    assert headline(verdict) == "SINGLE POINT: cause unnamed on rank 0, cost unknown, confidence high (94%)"


def test_a_fault_that_began_inside_the_window_is_dated_in_every_report(samples: dict[str, EngineDiagnosis]) -> None:
    """The time at which it began stands in text and Markdown as UTC, in JSON as ISO-8601; without one there is no such line."""
    known = samples["load"]
    dated = replace(known, verdict=replace(known.verdict, since=1_785_380_400.0 + 200.0))
    assert "since      2026-07-30 03:03:20 UTC" in render(dated, colour=False)
    assert "**since**: 2026-07-30 03:03:20 UTC" in markdown.render(dated)
    assert to_json([dated])["engines"][0]["verdict"]["since"] == "2026-07-30T03:03:20.000Z"
    assert "since" not in render(known, colour=False)
    assert to_json([known])["engines"][0]["verdict"]["since"] is None
