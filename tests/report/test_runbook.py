"""A runbook on a page: its structure kept, its words complete, anything else in it plain text."""

import re
from importlib import resources

from diagnose.report import runbook


def test_a_runbook_is_read_as_headings_paragraphs_and_lists() -> None:
    """Wrapped lines join, the title goes, code and emphasis are kept, and HTML in it stays text."""
    read = runbook.blocks("# title\n\n## Meaning\n\nOne `rank` waits\n*least*. <b>\n\n1. first\n   goes on\n2. second\n\n- dot\n")
    assert [(b.kind, ["".join(s.text for s in item) for item in b.items]) for b in read] == [
        ("heading", ["Meaning"]),
        ("paragraph", ["One rank waits least. <b>"]),
        ("numbers", ["first goes on", "second"]),
        ("bullets", ["dot"]),
    ]
    assert [(s.text, s.kind) for s in runbook.spans("a `b` * c ` *d*")] == [
        ("a ", "plain"),
        ("b", "code"),
        (" * c ` ", "plain"),
        ("d", "emphasis"),
    ]


def test_every_runbook_loses_nothing() -> None:
    """All words of each shipped runbook reach the page, but for the marks."""
    for file in resources.files("diagnose.rules").iterdir():
        if file.name.endswith(".md"):
            text = file.read_text(encoding="utf-8")
            shown = " ".join("".join(s.text for s in item) for b in runbook.blocks(text) for item in b.items)
            bare = re.sub(r"(?m)^(# .*|#+ |- |\d+\. )", "", re.sub(r"(?m)^\s+", "", text))
            assert re.sub(r"[`*\s]+", "", shown) == re.sub(r"[`*\s]+", "", bare)
