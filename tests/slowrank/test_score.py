"""The demo's score: right only when class, cause and rank are."""

import json

import numpy as np
import pytest

from collector.model import Engine
from diagnose.model import Class, EngineDiagnosis, LostTime, Severity, Verdict
from slowrank.score import Score, Truth, summary, to_document

LOAD = Truth(Class.LOAD, "context_length_skew", 0)


def _said(klass: Class, cause: str | None, ranks: tuple[int, ...]) -> EngineDiagnosis:
    verdict = Verdict(klass, cause, ranks, 0.9, "", Severity.NOTE, None, LostTime(None))
    return EngineDiagnosis(Engine("e", "sglang"), 0.0, 10.0, 5, (), None, verdict, ())


@pytest.mark.parametrize(
    ("klass", "cause", "ranks", "marks"),
    [
        (Class.LOAD, "context_length_skew", (0,), (True, True, True)),
        (Class.LOAD, "context_length_skew", (1,), (True, True, False)),
        (Class.LOAD, "context_length_skew", (0, 1), (True, True, False)),
        (Class.LOAD, "request_count_skew", (0,), (True, False, True)),
        (Class.SINGLE_POINT, "slow_rank", (), (False, False, False)),
    ],
)
def test_each_of_class_cause_and_rank_counts(klass: Class, cause: str, ranks: tuple[int, ...], marks: tuple[bool, ...]) -> None:
    """A right class with a wrong rank is not a right answer."""
    score = Score(LOAD, _said(klass, cause, ranks))
    assert (score.right_class, score.right_cause, score.right_rank) == marks
    assert score.right is all(marks)


def test_healthy_is_right_only_when_nobody_is_blamed() -> None:
    """A false alarm on a healthy engine is wrong in all three, insufficient evidence is wrong in class."""
    assert Score(Truth(Class.HEALTHY), _said(Class.HEALTHY, None, ())).right
    assert not Score(Truth(Class.HEALTHY), _said(Class.INSUFFICIENT, None, ())).right
    assert not Score(Truth(Class.HEALTHY), _said(Class.LOAD, "context_length_skew", (0,))).right_rank


def test_the_summary_has_a_line_per_act() -> None:
    """Injected against said, each answer marked."""
    lines = summary([Score(Truth(Class.HEALTHY), _said(Class.HEALTHY, None, ())), Score(LOAD, _said(Class.LOAD, "x", (3,)))]).splitlines()
    assert lines[0].split() == ["injected", "said", "class", "cause", "rank"]
    assert lines[1].split() == ["nothing", "healthy", "right", "right", "right"]
    assert lines[2].split("  ")[0] == "context_length_skew on rank 0"
    assert lines[2].split()[-3:] == ["right", "WRONG", "WRONG"]


def test_the_document_can_be_counted() -> None:
    """The JSON form holds the truth, the marks and the whole report."""
    document = to_document([Score(LOAD, _said(Class.LOAD, "context_length_skew", (0,)))], seed=3)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["seed"], document["right"]) == (3, 1)
    (act,) = document["acts"]
    assert act["injected"] == {"class": "load", "cause": "context_length_skew", "rank": 0}
    assert act["report"]["engines"][0]["verdict"]["ranks"] == [0]


def test_ranks_out_of_an_array_compare_like_any() -> None:
    """A rank that comes out of numpy is the same rank."""
    assert Score(LOAD, _said(Class.LOAD, "context_length_skew", (int(np.int64(0)),))).right
