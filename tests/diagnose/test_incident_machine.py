"""Whatever verdicts come, in whatever order and on whatever clock: what must hold of incidents and of what people are told."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from collector.model import Engine
from diagnose.incident import Event, Incident, Kind, Policy, State, advance, age
from diagnose.model import Class, EngineDiagnosis, Finding, Healthy, LostTime, NoData, Outcome, RuleOutcome, Severity, Share, Verdict

POLICY = Policy(open_limit=4, closed_limit=3, event_limit=5)
CAUSES = {
    "slow_rank": Class.SINGLE_POINT,
    "host_cpu_starved": Class.SINGLE_POINT,
    "request_count_skew": Class.LOAD,
    "expert_hotspot": Class.STRUCTURAL,
    "whole_group_slow": Class.INSUFFICIENT,
}
RANKS = st.lists(st.integers(0, 4), max_size=3, unique=True).map(tuple)
MONEY = st.sampled_from([0.0, 0.02, 0.03, 0.04, 0.05, 0.3, 1.0])
OUTCOMES = st.one_of(
    st.just(Healthy("level")),
    st.just(NoData(("sync_wait",))),
    st.builds(lambda ranks, share: Finding(ranks, Share(share, share, share), 0.9, "", ()), RANKS, MONEY),
)


def named(cause: str, ranks: tuple[int, ...], share: float, severity: Severity) -> Verdict:
    return Verdict(CAUSES[cause], cause, ranks, 0.9, cause, severity, Share(share, share, share), LostTime(share))


def bare(klass: Class, lost: float) -> Verdict:
    return Verdict(klass, None, (), 0.5, "", Severity.NOTE, None, LostTime(lost, {"unexplained": lost}))


NAMED = st.builds(named, st.sampled_from(sorted(CAUSES)), RANKS, MONEY, st.sampled_from(list(Severity)))


VERDICTS = st.one_of(
    st.lists(NAMED, min_size=1, max_size=4).map(lambda found: replace(found[0], also=tuple(found[1:]))),
    st.builds(bare, st.sampled_from([Class.HEALTHY, Class.INSUFFICIENT]), MONEY),
)


class Incidents(RuleBasedStateMachine):
    """Two engines' verdicts, silence, restarts and clocks that are set; the events so far are the truth to compare with."""

    def __init__(self) -> None:
        super().__init__()
        self.incidents: tuple[Incident, ...] = ()
        self.events: list[Event] = []
        self.now = 1e9

    def _diagnosis(self, verdict: Verdict, outcomes: dict[str, Outcome], length: float, engine: str, end: float) -> EngineDiagnosis:
        said = tuple(RuleOutcome(name, outcome) for name, outcome in outcomes.items())
        return EngineDiagnosis(Engine(engine, "sglang"), end - length, end, 3, (), 0.03, verdict, said)

    def _take(self, after: tuple[Incident, ...], events: tuple[Event, ...]) -> None:
        before = {i.id for i in self.incidents if i.open}
        known = {i.id: i for i in after}
        assert before <= known.keys(), "an open incident was lost"
        assert {e.incident for e in events} <= known.keys(), "an event of an incident that is not there"
        self.incidents = after
        self.events.extend(events)

    @rule(
        verdict=VERDICTS,
        outcomes=st.dictionaries(st.sampled_from(sorted(CAUSES)), OUTCOMES, max_size=4),
        length=st.sampled_from([1.0, 10.0, 60.0, 3600.0]),
        step=st.sampled_from([1.0, 10.0, 60.0, 700.0, 86400.0, -3600.0]),
        engine=st.sampled_from(["e", "e", "e", "f"]),
        times=st.integers(1, 80),
    )
    def verdict_holds(self, verdict, outcomes, length, step, engine, times):
        for n in range(times):
            self.now += step if n == 0 else abs(step) % 3601
            self._take(*advance(self.incidents, self._diagnosis(verdict, outcomes, length, engine, self.now), POLICY))

    @rule(one=VERDICTS, other=VERDICTS, times=st.integers(1, 100), off=st.integers(1, 8))
    def it_flaps(self, one, other, times, off):
        for _ in range(times):
            for verdict in (one, *[other] * off):
                self.now += 10.0
                self._take(*advance(self.incidents, self._diagnosis(verdict, {}, 10.0, "e", self.now), POLICY))

    @rule(verdict=VERDICTS, behind=st.floats(0.0, 120.0))
    def late_or_repeated(self, verdict, behind):
        mine = [i for i in self.incidents if i.engine == "e"]
        if mine:
            diagnosis = self._diagnosis(verdict, {}, 10.0, "e", max(i.judged for i in mine) - behind)
            assert advance(self.incidents, diagnosis, POLICY) == (self.incidents, ())

    @rule(seconds=st.sampled_from([-1000.0, 10.0, 299.0, 300.0, 1e6]))
    def no_verdict(self, seconds):
        self._take(*age(self.incidents, self.now + seconds, POLICY))

    @rule()
    def restart(self):
        text = json.dumps([i.to_json() for i in self.incidents], allow_nan=False)
        assert tuple(Incident.from_json(stored) for stored in json.loads(text)) == self.incidents

    @invariant()
    def people_hear_at_most_twice(self):
        """At most one opening, one page and one all-clear per incident, in this order; an all-clear is told only after a page."""
        per = Counter((e.incident, e.kind) for e in self.events if e.kind in {Kind.OPENED, Kind.CONFIRMED, Kind.RESOLVED})
        assert max(per.values(), default=1) == 1
        seen: dict[str, list[Event]] = {}
        for event in self.events:
            story = seen.setdefault(event.incident, [])
            kinds = {e.kind for e in story}
            assert (event.kind is Kind.OPENED) == (not story), "opened is the first event and only the first"
            assert Kind.RESOLVED not in kinds, "nothing happens to what is over"
            assert event.notify == (event.kind is Kind.CONFIRMED or Kind.CONFIRMED in kinds), "people are told what they know of"
            story.append(event)

    @invariant()
    def what_is_stored_agrees_with_what_was_said(self):
        said = {(e.incident, e.kind) for e in self.events}
        for i in self.incidents:
            assert ((i.id, Kind.CONFIRMED) in said) == (i.confirmed is not None)
            assert ((i.id, Kind.RESOLVED) in said) == (not i.open)
            assert (i.state is State.RESOLVED) == (i.resolved is not None)
            assert i.state is not State.CONFIRMED or i.confirmed is not None
            assert i.state is not State.SUSPECTED or i.confirmed is None
            assert set(i.ranks) <= set(i.ever)
            assert i.share is None or (i.peak_share is not None and i.share <= i.peak_share)

    @invariant()
    def ids_are_unique_and_memory_is_bounded(self):
        assert len({i.id for i in self.incidents}) == len(self.incidents)
        for engine in ("e", "f"):
            mine = [i for i in self.incidents if i.engine == engine]
            assert sum(i.open for i in mine) <= POLICY.open_limit
            assert sum(not i.open for i in mine) <= POLICY.closed_limit + POLICY.open_limit
        assert all(len(i.events) <= POLICY.event_limit for i in self.incidents)

    @invariant()
    def one_culprit_has_one_live_incident(self):
        """No two live incidents of one engine are of the same class, cause and ranks."""
        live = [(i.engine, i.klass, i.cause, i.ranks) for i in self.incidents if i.state is not State.RESOLVED]
        assert len(live) == len(set(live))


TestIncidents = Incidents.TestCase
TestIncidents.settings = settings(
    max_examples=60,
    stateful_step_count=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a failing story is long, and shrinking it takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
