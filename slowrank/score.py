"""What the demo injected against what the diagnosis said. Pure; only the demo knows the truth, the diagnosis never sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diagnose.model import Class, EngineDiagnosis
from diagnose.report.json import to_json
from diagnose.report.text import ranks_in_words

SCHEMA = "slowrank.demo/1"


@dataclass(frozen=True, slots=True)
class Truth:
    """What was done to the engine. A healthy engine has no cause and no rank."""

    klass: Class
    cause: str | None = None
    rank: int | None = None

    def __str__(self) -> str:
        return "nothing" if self.cause is None else f"{self.cause} on rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Score:
    """One act of the demo: the truth and the answer."""

    truth: Truth
    diagnosis: EngineDiagnosis

    @property
    def right_class(self) -> bool:
        """The class is the injected one."""
        return self.diagnosis.verdict.klass is self.truth.klass

    @property
    def right_cause(self) -> bool:
        """The first cause is the injected one."""
        return self.diagnosis.verdict.cause == self.truth.cause

    @property
    def right_rank(self) -> bool:
        """The culprit is the injected rank and no other."""
        return self.diagnosis.verdict.ranks == (() if self.truth.rank is None else (self.truth.rank,))

    @property
    def right(self) -> bool:
        """Right in all three."""
        return self.right_class and self.right_cause and self.right_rank

    @property
    def said(self) -> str:
        """The answer in a few words."""
        verdict = self.diagnosis.verdict
        if verdict.cause is None:
            return verdict.klass.value
        return f"{verdict.klass.value}: {verdict.cause} on {ranks_in_words(verdict.ranks)}"


def summary(scores: Sequence[Score]) -> str:
    """One line per act: injected, said, right or wrong."""
    head = ("injected", "said", "class", "cause", "rank")
    rows = [head, *((str(s.truth), s.said, *map(_mark, (s.right_class, s.right_cause, s.right_rank))) for s in scores)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def to_document(scores: Sequence[Score], **setting: Any) -> dict[str, Any]:
    """The verdicts with the injected truth, for programs that count over many runs."""
    return {
        "schema": SCHEMA,
        **setting,
        "right": sum(s.right for s in scores),
        "acts": [
            {
                "injected": {"class": s.truth.klass.value, "cause": s.truth.cause, "rank": s.truth.rank},
                "right": {"class": s.right_class, "cause": s.right_cause, "rank": s.right_rank},
                "report": to_json([s.diagnosis]),
            }
            for s in scores
        ],
    }


def _mark(right: bool) -> str:
    return "right" if right else "WRONG"
