"""Which labelled runs are made: every fault there is, at several severities, seeds and kinds of traffic. Pure.

Limits of the rules were chosen on seeds 0 to 21, most of them with the `chat` preset. Test runs take seeds from 100 on and every preset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec

from workload import faults, scenario
from workload.config import ClusterConfig, DeviceKind
from workload.schedule import Scheduled
from workload.traffic.presets import PRESETS

TUNING = range(22)
"""Seeds on which limits were chosen and confidence is calibrated."""
TEST = 100
"""The first seed that no number of the product was chosen on."""

ONSET = 150.0  # s: the service's two minutes of past after a warm-up
STARTED = 2.0  # s: a fault "from the start" begins when the engine has taken a step
LASTS = 70.0  # s: four scrapes at 15 s, and a window after them
FROM_START = 58.0  # s that such a fault lasts: what the service looks at, after the warm-up
RANKS = 8
SEVERITIES = (0.6, 1.0)
FAINT = (0.15, 0.3)

IDLE = {"pd_queue_skew": (("chat", "agent"), 1.0)}
"""Faults that do nothing but under some traffic, from some share of their severity on: elsewhere requests come so seldom that none waits
for the slow link (queues of seeds 0 and 1), and there is nothing to find."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One run. `about` is the scenario whose cluster (router, engine flags) is taken; `group` what it counts for; with
    `real` the run is one of real processes on that device. Times in seconds."""

    group: str  # single, faint, mixture, start
    about: str
    preset: str
    seed: int
    schedule: tuple[Scheduled, ...]
    onset: float
    length: float
    real: DeviceKind | None = None

    @property
    def has_past(self) -> bool:
        """Whether a healthy past lies before the onset."""
        return self.onset > 0

    def config(self) -> ClusterConfig:
        """The cluster: that of the scenario, with this run's traffic and seed."""
        base = scenario.load(self.about).config if self.about in scenario.bundled() else ClusterConfig()
        return msgspec.structs.replace(base, ranks=RANKS, traffic=PRESETS[self.preset], seed=self.seed, device=self.real or "virtual")


def single(
    seeds: Iterable[int], presets: Iterable[str], severities: Iterable[float] = SEVERITIES, group: str = "single", onset: float = ONSET
) -> Iterator[Spec]:
    """Each fault by itself; the culprit moves with the seed."""
    wanted, kinds, steps = list(seeds), list(presets), list(severities)
    for fault in faults.load().values():
        for seed in wanted:
            for preset in kinds:
                for share in steps:
                    under, least = IDLE.get(fault.id, (kinds, 0.0))
                    if preset not in under or share < least:
                        continue
                    rank = None if fault.whole_group else seed % RANKS
                    until = LASTS if onset else FROM_START
                    planned = Scheduled(fault.id, rank, max(onset, STARTED), until, fault.severity * share)
                    yield Spec(group, fault.id, preset, seed, (planned,), onset, onset + until)


def mixtures(seeds: Iterable[int], presets: Iterable[str]) -> Iterator[Spec]:
    """Two faults at once: the bundled scenarios that hold two, and every class beside each of the others."""
    pairs = [s.schedule for name in scenario.bundled() if len((s := scenario.load(name)).schedule) == 2]
    made = [((one.fault, one.rank, one.severity), (two.fault, two.rank, two.severity)) for one, two in pairs]
    made += [(("host_cpu_starved", 2, None), ("expert_hotspot", 5, None)), (("long_prefill", 4, None), ("expert_hotspot", 1, None))]
    made += [(("request_count_skew", 3, None), ("slow_node", 0, None)), (("context_length_skew", 6, None), ("slow_rank", 1, None))]
    kinds = list(presets)
    for seed in seeds:
        for preset in kinds:
            for pair in made:
                schedule = tuple(Scheduled(fault, rank, ONSET, LASTS, severity) for fault, rank, severity in pair)
                yield Spec("mixture", "+".join(fault for fault, _, _ in pair), preset, seed, schedule, ONSET, ONSET + LASTS)


def healthy(seeds: Iterable[int], presets: Iterable[str]) -> Iterator[Spec]:
    """Nothing wrong: windows in which anything blamed is blamed wrongly."""
    kinds = list(presets)
    for seed in seeds:
        for preset in kinds:
            yield Spec("healthy", "", preset, seed, (), ONSET, ONSET + LASTS)


def presets() -> tuple[str, ...]:
    """Every kind of traffic, the one that limits were chosen on first."""
    return tuple(PRESETS)


def full_severity(fault: str) -> float:
    """The severity of a run at full strength."""
    return faults.load()[fault].severity


def twin(spec: Spec) -> Spec:
    """The same engine with the same requests and nothing wrong: what the fault is measured against."""
    return replace(spec, schedule=())


def in_real_time(spec: Spec, device: DeviceKind) -> Spec:
    """The same with real processes on a device, which come to rest sooner than a minute; a window of the service and no more."""
    (planned,) = spec.schedule
    shorter = replace(planned, onset=40.0, duration=40.0)
    return replace(spec, schedule=(shorter,), onset=40.0, length=80.0, real=device)


def recorded(name: str) -> Spec:
    """What stands for a run that was recorded elsewhere."""
    return Spec("recorded", name, "chat", 0, (), ONSET, ONSET + LASTS, real="cuda")
