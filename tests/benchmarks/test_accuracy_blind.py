"""The diagnosing half never sees a label; the whole way from a plan to a judged run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks import accuracy
from benchmarks.accuracy import plan, runs, work
from benchmarks.accuracy.observe import Look, observe
from collector.capture import read_capture
from workload import labels
from workload.schedule import Scheduled

ROOM = Path(accuracy.__path__[0])
SHORT = plan.Spec("single", "context_length_skew", "chat", 100, (Scheduled("context_length_skew", 4, 150.0, 50.0, 1.0),), 150.0, 200.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> runs.Made:
    return runs.make(SHORT, tmp_path_factory.mktemp("cache"))


def test_a_diagnosis_needs_no_label_file(made, monkeypatch):
    """With the reader of labels broken and the file gone, the verdict of a capture is the same."""

    def refuse(path):
        raise AssertionError(f"the diagnosing half opened {path}")

    pages, look = list(read_capture(made.capture)), Look(150.0, 200.0, ablate=True)
    with_labels = observe(pages, look)
    monkeypatch.setattr(labels, "read", refuse)
    hidden = made.labels.rename(made.labels.with_suffix(".away"))
    try:
        assert observe(pages, look) == with_labels
    finally:
        hidden.rename(made.labels)
    assert (with_labels.main.klass, with_labels.main.cause, with_labels.main.ranks) == ("load", "context_length_skew", (4,))


def _imports(module: str) -> set[str]:
    tree = ast.parse((ROOM / f"{module}.py").read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    return names | {f"{node.module}.{a.name}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names}


def test_only_the_judge_knows_the_label_reader():
    """No other module of the benchmark imports it, and what observes imports nothing of the workload."""
    readers = {path.stem for path in ROOM.glob("*.py") if any(name.startswith("workload.labels") for name in _imports(path.stem))}
    assert readers == {"judge"}
    for module in ("observe", "ablate", "effect", "field"):
        assert not any(name.startswith("workload") for name in _imports(module)), module


def test_a_made_run_is_found_again_and_a_changed_one_made_anew(made):
    """The cache's folder follows from the run: the same run is not simulated twice."""
    before = made.capture.stat().st_mtime_ns
    folder = made.capture.parent.parent
    assert runs.make(SHORT, folder) == made
    assert made.capture.stat().st_mtime_ns == before


def test_a_run_that_cannot_be_made_says_why(tmp_path):
    """Real processes alone play what virtual time refuses; the refusal is a line, not a crash, and leaves nothing in the cache."""
    spec = plan.Spec("single", "context_length_skew", "chat", 1, (Scheduled("context_length_skew", 99, 5.0, 5.0),), 5.0, 10.0)
    said = work.one((spec, work.Depth()), tmp_path)
    assert isinstance(said, str)
    assert "99" in said
    assert not list(tmp_path.iterdir())


def test_a_run_is_judged_from_plan_to_truth(made):
    """The truth of the label file stands beside the verdict."""
    judged = work.one((SHORT, work.Depth(incidents=True)), made.capture.parent.parent)
    assert not isinstance(judged, str)
    assert (judged.truth.fault, judged.truth.ranks, judged.truth.tells) == ("context_length_skew", frozenset({4}), "metrics")
    assert [s.cause for _, s in judged.observed.confirmed] == ["context_length_skew"]
