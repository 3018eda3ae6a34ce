"""Cases from the field: no rank and no class is blamed without evidence."""

from __future__ import annotations

import pytest

from benchmarks.accuracy import field
from diagnose.model import Class


@pytest.mark.parametrize("case", field.CASES, ids=lambda c: c.id)
def test_no_case_is_answered_wrong(case):
    """Right, or no verdict: a class that is not the case's, or a rank that is not its own, is never said."""
    assert field.tell(case).outcome != "wrong"


def test_every_file_of_the_cases_is_a_case():
    """A case that is added to the folder without an expectation is noticed; notes are no cases."""
    listed = {file for case in field.CASES for file in case.files}
    assert {p.name for p in field.FOLDER.iterdir() if ".NOTE." not in p.name} == listed


def test_most_pages_are_really_read():
    """A case counts as unread only when nothing of it is a page of an engine that is read; SGLang's pages and logs all are."""
    told = {case.id: field.tell(case) for case in field.CASES}
    assert all(told[i].verdict is not None for i in ("07", "08", "09", "10", "17", "18", "19", "21", "23", "24", "25 zeroed", "29"))


def test_a_log_becomes_the_load_page_of_its_ranks():
    """Sixteen ranks' decode lines: the ranks of that node, each with its running requests."""
    case = next(c for c in field.CASES if c.id == "09")
    assert case.feed is not None
    body = case.feed(case)[0].body.decode()
    assert body.count('"dp_rank"') == 8
    assert body.count('"num_running_reqs": 15') == 8


def test_a_named_innocent_is_wrong():
    """The outcome's own arithmetic: the right class on an engine that is not the case's is wrong."""
    case = next(c for c in field.CASES if c.id == "03")
    sample = field.tell(next(c for c in field.CASES if c.id == "09")).verdict
    assert sample is not None
    from dataclasses import replace

    assert field.Told(case, replace(sample, klass=Class.LOAD, ranks=(0,))).outcome == "right"
    assert field.Told(case, replace(sample, klass=Class.LOAD, ranks=(2,))).outcome == "wrong"
    assert field.Told(case, replace(sample, klass=Class.SINGLE_POINT, ranks=(0,))).outcome == "wrong"
    assert field.Told(case, replace(sample, klass=Class.INSUFFICIENT, ranks=())).outcome == "abstains"
