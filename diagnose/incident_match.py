"""Which incident a cause found now belongs to. Pure.

One cause of one class on a rank is one incident, whatever it is called and however many ranks it spreads to. A single point has a place:
the same cause on a rank that the incident never named is another one. Load and layout have none, the rank is only where they show now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from diagnose.incident_model import Incident, State
from diagnose.model import Class, EngineDiagnosis, Severity, Share, Verdict


@dataclass(frozen=True, slots=True)
class Sighting:
    """One cause that a verdict names, first or among `also`."""

    klass: Class
    cause: str
    ranks: tuple[int, ...]
    share: float | None  # None: the rule puts no figure on it
    confidence: float
    severity: Severity
    summary: str


@dataclass(frozen=True, slots=True)
class Match:
    """A sighting, the incident that it continues (None: a new one), and those that it shows to be the same."""

    sighting: Sighting
    incident: Incident | None
    absorbed: tuple[Incident, ...] = ()


def priced(share: Share | None) -> float | None:
    """The share that a finding is held against; None where its rule puts no figure on it, be it that it judges in another unit, or that
    without a healthy past the cost may be anything (a bad link: 0 to 1). Such a rule held the finding against a limit of its own."""
    if share is None or share.high <= 0.0 or not math.isfinite(share.mid):
        return None
    return None if share.mid == 0.0 and share.high >= 1.0 else share.mid


def reaches(share: float | None, limit: float) -> bool:
    """Whether a finding counts at a limit. What has no price counts: its rule held it against a limit of its own."""
    return share is None or share >= limit


def sightings(diagnosis: EngineDiagnosis, least: float) -> tuple[Sighting, ...]:
    """The causes of a verdict that reach `least`, largest first. A cause that it names twice in one place is found once, with all ranks."""
    out: list[Sighting] = []
    for verdict in (diagnosis.verdict, *diagnosis.verdict.also):
        found = _sighting(verdict)
        if found is None or not reaches(found.share, least):
            continue
        same = next((n for n, s in enumerate(out) if _one_thing(s, found)), None)
        if same is None:
            out.append(found)
        else:
            out[same] = replace(out[same], ranks=tuple(sorted({*out[same].ranks, *found.ranks})))
    return tuple(out)


def _one_thing(one: Sighting, other: Sighting) -> bool:
    return one.klass is other.klass and one.cause == other.cause and same_place(one.klass, one.ranks, other.ranks)


def _sighting(verdict: Verdict) -> Sighting | None:
    """None when the verdict names no cause: healthy, or too little to say."""
    if verdict.cause is None or verdict.klass is Class.HEALTHY:
        return None
    ranks = tuple(sorted(set(verdict.ranks)))
    return Sighting(verdict.klass, verdict.cause, ranks, priced(verdict.share), verdict.confidence, verdict.severity, verdict.summary)


def same_place(klass: Class, mine: Iterable[int], theirs: Iterable[int]) -> bool:
    """Whether two findings of one cause can be of one culprit: not when both name ranks of a single point, and none in common."""
    one, other = set(mine), set(theirs)
    return klass is not Class.SINGLE_POINT or not one or not other or bool(one & other)


def match(incidents: Sequence[Incident], found: Sequence[Sighting]) -> tuple[Match, ...]:
    """Each sighting with its incident, one to one: first by cause, then what is left by rank and class under another name."""
    chosen: dict[int, Incident] = {}
    for fits in (_same_cause, _renamed):
        for number, sighting in enumerate(found):
            taken = {incident.id for incident in chosen.values()}
            free = [i for i in incidents if i.id not in taken and fits(i, sighting)]
            if number not in chosen and free:
                chosen[number] = min(free, key=lambda i: _rank_of(i, sighting))
    taken = {incident.id for incident in chosen.values()}
    out = []
    for number, sighting in enumerate(found):
        absorbed = tuple(i for i in incidents if number in chosen and i.id not in taken and _same_thing(i, sighting))
        taken |= {i.id for i in absorbed}
        out.append(Match(sighting, chosen.get(number), absorbed))
    return tuple(out)


def _same_cause(incident: Incident, sighting: Sighting) -> bool:
    same = incident.klass is sighting.klass and incident.cause == sighting.cause
    return same and same_place(sighting.klass, incident.ever if incident.ranks else (), sighting.ranks)


def _renamed(incident: Incident, sighting: Sighting) -> bool:
    """The same ranks and class under another name: more evidence came in, and the cause is known better (or less well) than before."""
    return incident.klass is sighting.klass and bool(set(incident.ranks) & set(sighting.ranks))


def _same_thing(incident: Incident, sighting: Sighting) -> bool:
    """An incident that a sighting covers beside the one that it continues. A sighting that names nobody covers no named culprit."""
    return _renamed(incident, sighting) and incident.cause == sighting.cause


def _rank_of(incident: Incident, sighting: Sighting) -> tuple[bool, bool, int, float, str]:
    """Least is best: people know of it, it is live, it shares most ranks, it is oldest."""
    common = len(set(incident.ranks) & set(sighting.ranks))
    return incident.confirmed is None, incident.state is State.RESOLVED, -common, incident.opened, incident.id
