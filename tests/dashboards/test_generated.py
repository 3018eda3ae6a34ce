"""The committed files are what the code makes, and the command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards import build

GENERATED = Path(build.__file__).parent / "generated"


def test_committed_files_are_what_the_code_makes():
    """`slowrank dashboards build` and `slowrank rules build` were run after the last change."""
    assert build.drift(build.page_files() | build.rule_files(), GENERATED) == []


def test_no_file_is_left_over():
    """A dashboard that is no longer made is not shipped."""
    assert build.strangers(build.page_files(), GENERATED, ".json") == []
    assert build.strangers(build.rule_files(), GENERATED, ".yaml") == []


def test_building_twice_gives_the_same_bytes():
    """No time, no order of a set, no memory address gets in; keys are sorted."""
    first = build.page_files() | build.rule_files("https://runbooks.example")
    assert first == build.page_files() | build.rule_files("https://runbooks.example")
    for name, text in build.page_files().items():
        assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n", name


def test_only_what_differs_is_written(tmp_path):
    """A second build touches nothing."""
    assert {path.name for path in build.write(build.page_files(), tmp_path)} == set(build.page_files())
    assert build.write(build.page_files(), tmp_path) == []
    (tmp_path / "slowrank-rank.json").write_text("{}")
    (tmp_path / "slowrank-old.json").write_text("{}")
    assert build.drift(build.page_files(), tmp_path) == ["slowrank-rank.json"]
    assert build.strangers(build.page_files(), tmp_path, ".json") == ["slowrank-old.json"]


@pytest.mark.parametrize("base", ["https://runbooks.example", "https://runbooks.example/"])
def test_alerts_link_runbooks_where_those_are_published(base):
    """With an address each alert on a finding has its rule's runbook; without, none has a link that leads nowhere."""
    assert 'runbook_url: "https://runbooks.example/slow_rank.md"' in build.rule_files(base)["slowrank.rules.yaml"]
    assert "runbook_url" not in build.rule_files()["slowrank.rules.yaml"]
