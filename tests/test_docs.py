"""Documentation that is held to the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.signals import CATALOGUE
from diagnose.rules import load
from workload import faults

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_lists_every_rule_with_its_runbook():
    """The table of the README links each rule's runbook, and no rule that does not exist."""
    linked = re.findall(r"\[`(\w+)`\]\(diagnose/rules/(\w+)\.md\)", (ROOT / "README.md").read_text())
    assert {a for a, _ in linked} == set(load())
    assert all(a == b for a, b in linked)


@pytest.mark.parametrize("doc", DOCS, ids=lambda p: p.name)
def test_every_file_that_a_document_names_exists(doc):
    """Paths in backquotes and relative links lead somewhere."""
    text = doc.read_text()
    named = re.findall(r"`((?:collector|diagnose|dashboards|workload|slowrank|docs|tests|benchmarks)/[\w./-]*)`", text)
    links = re.findall(r"\]\((?!http|#)([^)#]+)\)", text)
    missing = [p for p in named if not (ROOT / p).exists()] + [p for p in links if not (doc.parent / p).exists()]
    assert not missing


@pytest.mark.parametrize("doc", DOCS, ids=lambda p: p.name)
def test_every_test_that_a_document_names_exists(doc):
    """`test_file.py::test_name` is a test of that name in a file of that name, which may be given with folders below tests/."""
    for file, name in re.findall(r"`([\w/]*test_\w+\.py)::(\w+)`", doc.read_text()):
        sources = [path.read_text() for path in (ROOT / "tests").rglob(file)]
        assert any(re.search(rf"^(?:async def|def|class) {name}\b|^{name} = ", source, re.MULTILINE) for source in sources), (
            f"{file}::{name}"
        )


def test_every_fault_that_names_a_rule_exists_as_one():
    """A fault is named as the rule that it must trigger; a rule that can be caused has its fault."""
    assert set(load()) - set(faults.load()) == set()


def test_every_signal_says_how_to_turn_it_on():
    """`slowrank doctor` has a flag, a variable or a version for each signal, and what it adds."""
    for signal in CATALOGUE.values():
        assert re.search(r"--\w|SGLANG_|>= 0\.5", signal.enable), signal.name
        assert signal.adds


def test_decisions_are_numbered_and_short():
    """Each decision has its number, context, choice and cost, in about ten lines."""
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [f.name[:4] for f in files] == [f"{n:04d}" for n in range(1, len(files) + 1)]
    for file in files:
        text = file.read_text()
        assert text.startswith(f"# {file.name[:4]} "), file.name
        assert all(f"\n{part}:" in text for part in ("Context", "Choice", "Cost")), file.name
        assert len(text.splitlines()) <= 16, file.name
