"""The report as one file: well-formed, offline, inert whatever a label holds, bounded, the culprit marked."""

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import cast

import numpy as np
import pytest

from collector import signals
from collector.model import Clock, Engine, Facts, Problem, Window
from diagnose.engine import diagnose
from diagnose.model import Class, EngineDiagnosis, LostTime, Missing, RuledOut
from diagnose.report import panels
from diagnose.report.heatmap import MOST_COLUMNS, MOST_NAMED, MOST_ROWS, heat_map
from diagnose.report.html import render, render_all

VOID = {"meta", "br", "link", "img", "input", "hr"}
HOSTILE = (
    "\"'><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>{{ 7*7 }}{% raw %}\u202eolleh\r\n</style></svg>&amp;"
)

MakeWindow = Callable[..., Window]

MOST_BYTES = 512 * 1024
"""Of one engine's report, whatever its size. Three maps of at most 32 shared and 8 named rows by 96 columns have 11,520 cells; a run of one
cell is at most "M95 39h1", 8 bytes: 92 KB. Tables and lists are cut at 32 ranks; runbooks have a few KB each. 512 KiB leaves room for
long evidence, and is half of what chat systems take as a snippet."""


class Page(HTMLParser):
    """A strict reader: every element closed in order; remembers tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def _safe_page(page: str) -> Page:
    """The page's structure, after the checks that hold for every page."""
    read = Page(page)
    assert page.startswith("<!DOCTYPE html>\n<html")
    assert {tag for tag, _ in read.tags} & {"script", "iframe", "object", "embed", "link", "img", "form", "base", "foreignobject"} == set()
    for _, attributes in read.tags:
        assert not [name for name in attributes if name.startswith("on") or name in {"src", "style", "srcset", "formaction"}]
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import", page)
    return read


def test_every_kind_of_verdict_is_one_sound_page(sample: tuple[str, EngineDiagnosis], window: MakeWindow) -> None:
    """Balanced, no script, no event handler, nothing fetched from anywhere."""
    _, diagnosis = sample
    read = _safe_page(render(diagnosis, window()))
    assert diagnosis.verdict.summary in read.words


def test_the_policy_allows_the_one_style_sheet_and_nothing_else(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """default-src none, and the hash is that of the style element's bytes: a wrong one would leave the page unstyled."""
    page = render(samples["load"], window())
    policy = next(a["content"] for tag, a in Page(page).tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    css = page[page.index("<style>") + 7 : page.index("</style>")]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_the_verdict_comes_first_then_what_to_do(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """Verdict, remedy, what it costs, ranks, drawings, evidence, what was ruled out, what is missing, runbook."""
    read = _safe_page(render(samples["load"], window()))
    order = [
        "LOAD: context_length_skew on rank 0",
        "27%",
        "What to do next",
        "--load-balance-method total_tokens",
        "Lost time by cause",
        "Ranks through time",
        "Evidence",
        "rate(sglang:dp_attention_pairs_total",
        "Ruled out",
        "Missing, and how to turn it on",
        "--expert-distribution-recorder-mode stat",
        "Runbook: context_length_skew Meaning",
    ]
    begin = read.words.index("http://host:30000")
    found = [read.words.index(part, begin) for part in order]
    assert found == sorted(found)


def test_the_culprit_is_marked_in_the_table_and_in_every_map(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """One marked row of the table, one frame and one arrow a map; without a culprit none."""
    page = render(samples["load"], window())
    assert page.count('<tr class="culprit">') == 1
    assert page.count('class="marked"') == 3
    assert page.count("▶ rank 0<") == 3
    calm = render(samples["healthy"], window())
    assert "culprit" not in Page(calm).words
    assert 'class="marked"' not in calm


def test_of_several_causes_each_culprit_has_its_own_and_each_cause_its_runbook(
    samples: dict[str, EngineDiagnosis], window: MakeWindow
) -> None:
    """The also-cause is reported with its remedy and runbook, not only counted."""
    read = _safe_page(render(samples["single_point_and_load"], window()))
    assert "◀ culprit: context_length_skew" in read.words
    assert "◀ culprit: host_cpu_starved" in read.words
    assert read.words.count("Also found") == 1
    assert re.search("Runbook: host_cpu_starved Meaning .* Runbook: context_length_skew Meaning", read.words)
    ids = {a["id"] for _, a in read.tags if "id" in a}
    assert {a["href"] for _, a in read.tags if (a.get("href") or "").startswith("#")} <= {f"#{i}" for i in ids}


def test_nothing_is_green_that_is_not_healthy(sample: tuple[str, EngineDiagnosis], window: MakeWindow) -> None:
    """Green is for healthy alone, grey for no verdict."""
    name, diagnosis = sample
    mood = re.search(r'<header class="verdict (\w+)">', render(diagnosis, window()))
    assert mood is not None
    wanted = {"healthy": "healthy", "insufficient": "blind"}.get(name, diagnosis.verdict.severity.value)
    assert mood[1] == wanted


def test_hostile_text_is_inert(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """Whatever an engine calls itself, the page has the same elements, and shows the text with controls made visible."""
    verdict = samples["single_point_and_load"].verdict

    def spoil(text: str) -> EngineDiagnosis:
        evidence = tuple(replace(e, what=text, promql=text, unit=text, signal=text) for e in verdict.evidence)
        return replace(
            samples["single_point_and_load"],
            engine=Engine(text, text, Facts(version=text, model=text, role=text, accelerator=text), clock=cast(Clock, text)),
            verdict=replace(
                verdict,
                cause=text,
                summary=text,
                remedy=text,
                runbook=text,
                would_tell=text,
                evidence=evidence,
                lost_time=LostTime(0.1, {text: 0.1}),
                ruled_out=(RuledOut(Class.LOAD, text),),
                missing=(Missing(text, text, text),),
            ),
            problems=(Problem(text, text, text),),
            notes=(text,),
        )

    page = render(spoil(HOSTILE), window())
    read = _safe_page(page)
    calm = _safe_page(render(spoil("x"), window()))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in calm.tags]
    assert [sorted(a) for _, a in read.tags] == [sorted(a) for _, a in calm.tags]
    assert "<script>alert(1)</script>" in read.words
    assert "{{ 7*7 }}" in read.words
    assert not re.search("[\u202a-\u202e\u2066-\u2069\r]", page)


def test_the_same_input_gives_the_same_bytes(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """No clock, no random id."""
    assert render(samples["load"], window()) == render(samples["load"], window())


def test_several_engines_stand_in_one_file_with_a_list_in_front(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """Each engine's verdict stands in the list and leads to its report; ids do not clash."""
    read = _safe_page(render_all([(samples["load"], window()), (samples["healthy"], window()), (samples["insufficient"], window(7))]))
    ids = [a["id"] for _, a in read.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert [a["href"] for tag, a in read.tags if tag == "a"][:3] == ["#engine-0", "#engine-1", "#engine-2"]
    assert sum(tag == "article" for tag, _ in read.tags) == 3


def test_no_engine_is_a_page_too() -> None:
    """When nothing answered the file says so."""
    assert "No engine was read" in _safe_page(render_all([])).words


def test_what_was_not_observed_is_neither_dark_nor_bright(window: MakeWindow) -> None:
    """NaN and infinite cells have no colour but the hatched ground, and the legend names it; row means leave them out."""
    values = np.full((8, 20), 1000.0)
    values[2, 4:9], values[3, 1], values[7] = np.nan, np.inf, np.nan
    seen = window(changes={signals.RESIDENT_TOKENS: values})
    pairs = next(heat_map(p, seen.ranks, frozenset()) for p in panels.panels(seen, 0.05) if p.unit == "pairs")
    assert pairs.unseen == "M4 2h5M1 3h1M0 7h20"
    assert [row.mean for row in pairs.rows] == ["1,000 pairs"] * 7 + ["–"]
    page = render(diagnose(seen), seen)
    assert page.count("</svg> not observed</li>") == 1
    assert "nan" not in page.lower().replace("maintenan", "")


def test_a_signal_that_is_not_there_is_said_with_what_it_needs(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """No empty axes: a sentence that names the signals. Half a wait is drawn with a warning."""
    half = window().without(signals.RECV_WAIT)
    assert "Only half of the wait was observed" in Page(render(samples["load"], half)).words
    bare = half.without(signals.SYNC_WAIT, signals.DECODE_STEPS, signals.STEPS_ACTIVE, signals.STEPS_IDLE)
    words = Page(render(samples["load"], bare)).words
    assert "It needs sync_wait, recv_wait, steps_active." in words
    assert words.count("Not observed in this window.") == 3


def test_lost_time_unknown_is_no_empty_bar(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """Unknown is said, not drawn as zero."""
    words = Page(render(samples["structural_no_rank"], window())).words
    assert "The signals do not say how much time is lost." in words
    assert "not lost" not in words


@pytest.mark.parametrize(("ranks", "columns"), [(1, 20), (2, 1), (8, 0), (0, 4)])
def test_tiny_windows_are_drawn(samples: dict[str, EngineDiagnosis], ranks: int, columns: int, window: MakeWindow) -> None:
    """One rank, one interval, none at all: a sound page without a number made up."""
    shape = (ranks, columns)
    made = window()
    small = replace(
        made, ranks=made.ranks[:ranks], edges=made.edges[: columns + 1], values={k: v[:ranks, :columns] for k, v in made.values.items()}
    )
    assert all(v.shape == shape for v in small.values.values())
    _safe_page(render(replace(samples["healthy"], ranks=samples["healthy"].ranks[:ranks]), small))


def test_the_file_is_bounded(samples: dict[str, EngineDiagnosis], window: MakeWindow) -> None:
    """512 ranks, 10,000 intervals and every cell unlike its neighbour stay below MOST_BYTES."""
    ranks, columns = 512, 10_000
    cells = np.random.default_rng(1).uniform(0.0, 1.0, (MOST_ROWS, MOST_COLUMNS))
    noise = cells.repeat(ranks // MOST_ROWS, axis=0).repeat(columns // MOST_COLUMNS + 1, axis=1)[:, :columns]
    noisy = window(ranks, columns, dict.fromkeys((signals.RESIDENT_TOKENS, signals.ATTENTION_TOKENS, signals.SYNC_WAIT), noise))
    culprits = tuple(range(0, ranks, 4))
    rows = tuple(replace(samples["load"].ranks[0], rank=r, culprit=r in culprits) for r in range(ranks))
    page = render(replace(samples["load"], ranks=rows, verdict=replace(samples["load"].verdict, ranks=culprits)), noisy)
    assert len(page.encode()) < MOST_BYTES
    assert page.count("▶ rank") == 3 * MOST_NAMED
    _safe_page(page)
