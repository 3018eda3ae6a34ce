"""Verdicts one after the other, and the incidents that come of them. Windows are 10 s long, end to end, unless said."""

from __future__ import annotations

from collections import Counter

from collector.model import Engine
from diagnose.incident import Event, Incident, Kind, Policy, advance
from diagnose.model import Class, EngineDiagnosis, LostTime, RuleOutcome, Severity, Share, Verdict

POLICY = Policy()
STEP = 10.0
CLEAR = int(POLICY.clear / STEP)  # healthy windows that resolve
COOL = int(POLICY.cool_down / STEP)  # further ones that close
SINGLE, LOAD = Class.SINGLE_POINT, Class.LOAD


def bad(cause="slow_rank", ranks=(3,), share=0.2, klass=SINGLE, severity=Severity.PAGE, confidence=0.9, also=()) -> Verdict:
    cost = share if isinstance(share, Share) else Share(share, share, share)
    return Verdict(klass, cause, ranks, confidence, f"{cause} on {ranks}", severity, cost, LostTime(cost.mid), also=also)


def calm(klass=Class.HEALTHY, unexplained=0.0) -> Verdict:
    return Verdict(klass, None, (), 0.9, "", Severity.NOTE, None, LostTime(unexplained, {"unexplained": unexplained}))


def at(end: float, verdict: Verdict, outcomes=(), length=STEP, engine="e") -> EngineDiagnosis:
    said = tuple(RuleOutcome(rule, outcome) for rule, outcome in outcomes)
    return EngineDiagnosis(Engine(engine, "sglang"), end - length, end, 3, (), 0.03, verdict, said)


class Story:
    """Verdicts, each one window after the other."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.incidents: tuple[Incident, ...] = ()
        self.events: list[Event] = []
        self.now, self.policy = 1000.0, policy

    def tell(self, *verdicts: Verdict, outcomes=(), every=STEP) -> Story:
        for verdict in verdicts:
            self.now += every
            self.hear(at(self.now, verdict, outcomes))
        return self

    def hear(self, diagnosis: EngineDiagnosis) -> list[Event]:
        self.incidents, events = advance(self.incidents, diagnosis, self.policy)
        self.events += events
        return list(events)

    def kinds(self) -> Counter[Kind]:
        return Counter(e.kind for e in self.events)

    @property
    def one(self) -> Incident:
        (incident,) = self.incidents
        return incident
