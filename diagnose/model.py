"""What was concluded: a rule's outcome, and the verdict adjudicated from all of them. Frozen, no IO."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from collector.model import Engine, Problem


class Class(Enum):
    """What kind of thing is wrong; each has its own cure."""

    HEALTHY = "healthy"
    SINGLE_POINT = "single-point"
    LOAD = "load"
    STRUCTURAL = "structural"
    OUTSIDE = "outside"
    INSUFFICIENT = "insufficient-evidence"


class Severity(Enum):
    """How a person should be told: PAGE wakes someone, TICKET waits for the morning, NOTE is only shown."""

    PAGE = "page"
    TICKET = "ticket"
    NOTE = "note"


STEP_TIME = "step time"
"""What a share is of, unless its finding says otherwise: only such shares add up to the lost time."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share of step time, 0..1: the best estimate and the range that the signals allow."""

    mid: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.high - self.low < 0.02:
            return f"{self.mid:.0%}"
        return f"{self.mid:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a reader can check: what was seen, what it was compared with, and the PromQL that reproduces it."""

    signal: str
    what: str  # one sentence, with the numbers
    observed: float
    expected: float | None  # of peers, of the past, or of a model
    unit: str
    rank: int | None = None  # None: of the group
    threshold: float | None = None  # the limit that `observed` was held against, in `unit`
    promql: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that fires: which ranks, what it costs, how sure, and why."""

    ranks: tuple[int, ...]  # empty: the signals cannot name one
    share: Share  # of step time that removing the cause would give back
    confidence: float  # 0..1
    summary: str
    evidence: tuple[Evidence, ...]
    would_tell: str = ""  # the observation that would settle what is still open
    weakened_by: tuple[str, ...] = ()  # signals whose absence lowered the confidence
    severity: Severity | None = None  # None: its rule's
    share_of: str = STEP_TIME  # what `share` is a share of, in words


@dataclass(frozen=True, slots=True)
class Healthy:
    """A rule that looked and found nothing: why not."""

    why: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class NoData:
    """A rule that could not look: which signals it lacks."""

    missing: tuple[str, ...]
    why: str = ""


Outcome = Finding | Healthy | NoData


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A class that was considered and set aside, with the reason."""

    klass: Class
    why: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A signal that was not there: how to turn it on, and what it would add."""

    signal: str
    enable: str
    adds: str


@dataclass(frozen=True, slots=True)
class LostTime:
    """The lockstep loss: the share of step time lost to waiting, and how much of it each cause explains."""

    share: float | None  # None: the signals do not say
    by_cause: dict[str, float] = field(default_factory=dict)  # rule ids and "unexplained"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one engine and one window. `also` holds further significant causes, largest first."""

    klass: Class
    cause: str | None  # rule id
    ranks: tuple[int, ...]
    confidence: float
    summary: str
    severity: Severity
    share: Share | None
    lost_time: LostTime
    evidence: tuple[Evidence, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    missing: tuple[Missing, ...] = ()
    remedy: str = ""
    runbook: str = ""
    would_tell: str = ""
    also: tuple[Verdict, ...] = ()
    since: float | None = None  # unix seconds at which it began inside the window; None: not seen to begin
    share_of: str = STEP_TIME


@dataclass(frozen=True, slots=True)
class RankRow:
    """One line of the per-rank table. None: not observed."""

    rank: int
    running: float | None = None
    waiting: float | None = None
    tokens_per_step: float | None = None
    pairs_per_step: float | None = None
    wait_per_step: float | None = None  # s
    lateness: float | None = None  # s
    scheduler_cpu: float | None = None  # s/s
    snapshot_age: float | None = None  # s
    culprit: bool = False
    step_time: float | None = None  # s, the rank's own; only where steps are not known to be equal on all ranks


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What one rule said."""

    rule: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class EngineDiagnosis:
    """Everything concluded about one engine in one window."""

    engine: Engine
    start: float  # unix seconds
    end: float
    scrapes: int
    ranks: tuple[RankRow, ...]
    step_time: float | None  # s, the group's cadence
    verdict: Verdict
    outcomes: tuple[RuleOutcome, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
