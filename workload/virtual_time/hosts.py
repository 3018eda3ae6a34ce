"""When each rank's scheduler is where in a step: the two meetings of `workload.exchange`, with drawn delays in place of real ones.

The delays were measured on the real cluster of 8 rank processes on two cores (CHAT traffic, 640 steps, every stage of every step
logged): see each constant. They are what a busy small machine gives; a rank with a core of its own is quicker and steadier.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workload.exchange import children, parent
from workload.virtual_time.processor import Processor

Array = np.ndarray[Any, np.dtype[np.float64]]

WAKE = 0.3e-3  # seconds from a step's end to the first rank's next loop: the card's message, the result, the counters
_STAGGER = 1.2e-3  # the others follow within this: 8 processes are woken one after another, in turn. Measured 5/50/95 %: 0/.57/1.26 ms
_STAGGER_SPREAD = 0.2  # of the logarithm
# One hop of the control broadcast. The ranks that wait for one hop alone measured 0.22 ms in the mean, those behind three 0.38
_HOP = (0.17e-3, 0.6)  # median seconds and spread of the logarithm, here and below
_ACK = 0.12e-3  # seconds until a parent has its child's acknowledgement
_SCHEDULE = (60e-6, 0.27)  # the scheduling pass without the exchange: 5/50/99 % 46/60/200 us
_GATHER = 0.14e-3  # seconds from the last row's arrival until rank 0 has the table: mean 0.16 ms
_TABLE_HOP = (80e-6, 0.6)  # the table's way down: 0.23, 0.33 and 0.44 ms after one, two and three hops
_LAUNCH = (60e-6, 1.0)  # mean 0.12-0.17 ms, median 54 us: now and then the other processes are in the way
TAKE_IN = 5e-6  # seconds for looking at the messages
OTHER = 6e-6  # seconds for the counters' tick

# CPU of a rank's process per step: 0.465 ms, and 0.03 ms for each rank below it in the tree. Measured 0.58, 0.52, 0.50, 0.50, 4 x 0.466
_CPU = 0.465e-3
_CPU_CHILD = 0.030e-3
_CPU_SPREAD = 0.2


class HostTimes:
    """The loops of all ranks over a number of steps, undisturbed. All seconds, relative to the first rank's begin of the step.

    Arrays are steps x ranks: `begin` of the loop, `heard` the end of the control broadcast, `asked` the arrival at the metadata exchange,
    `told` its end, `launched`. `ready` is a list: the last rank's launch.
    """

    def __init__(self, rng: np.random.Generator, ranks: int, steps: int) -> None:
        self.ranks = ranks
        shape = (steps, ranks)
        begin = rng.uniform(0, _STAGGER, shape) * np.exp(rng.normal(0, _STAGGER_SPREAD, shape))
        self.begin: Array = begin - begin.min(axis=1, keepdims=True)
        self.hop = _lognormal(rng, _HOP, shape)
        self.schedule = _lognormal(rng, _SCHEDULE, shape) + TAKE_IN
        self.table_hop = _lognormal(rng, _TABLE_HOP, shape)
        self.launch = _lognormal(rng, _LAUNCH, shape)
        below = np.array([len(children(r, ranks)) for r in range(ranks)])
        self.cpu: Array = (_CPU + _CPU_CHILD * below) * np.exp(rng.normal(0, _CPU_SPREAD, shape))
        got = self.begin.copy()
        for r in range(1, ranks):
            got[:, r] = np.maximum(got[:, r], got[:, parent(r)] + self.hop[:, r])
        self.heard = got.copy()
        for r in range(1, ranks):
            p = parent(r)
            self.heard[:, p] = np.maximum(self.heard[:, p], got[:, r] + _ACK)
        self.asked = self.heard + self.schedule
        self.told = np.empty(shape)
        self.told[:, 0] = self.asked.max(axis=1) + _GATHER
        for r in range(1, ranks):
            self.told[:, r] = self.told[:, parent(r)] + self.table_hop[:, r]
        self.launched = self.told + self.launch
        self.launch_seconds: Array = self.launched - self.told
        self.ready: list[float] = self.launched.max(axis=1).tolist()

    def disturbed(self, step: int, free: list[float], card: float, processors: list[Processor], busy: list[float]) -> float | None:
        """Works out one step again, for ranks whose processes are disturbed, and puts it into the arrays.

        `free`: when each rank had launched the last step; `card`: the end of the step whose result they wait for; both absolute, as the
        answer is: the first rank's begin. None while a rank is stopped for good: then nothing was changed.
        """
        ranks = range(self.ranks)
        begin = [processors[r].after(max(free[r], card), WAKE + float(self.begin[step, r])) for r in ranks]
        got = begin.copy()
        for r in ranks[1:]:
            got[r] = processors[r].after(max(begin[r], got[parent(r)] + float(self.hop[step, r])), 0.0)
        heard = got.copy()
        for r in ranks[1:]:
            p = parent(r)
            heard[p] = processors[p].after(max(heard[p], got[r] + _ACK), 0.0)
        asked = [processors[r].after(heard[r], float(self.schedule[step, r]) + busy[r]) for r in ranks]
        told = asked.copy()
        told[0] = processors[0].after(max(asked) + _GATHER, 0.0)
        for r in ranks[1:]:
            told[r] = processors[r].after(told[parent(r)] + float(self.table_hop[step, r]), 0.0)
        launched = [processors[r].after(told[r], float(self.launch[step, r])) for r in ranks]
        ready = max(launched)
        if ready == float("inf"):
            return None
        base = min(begin)
        for where, what in ((self.begin, begin), (self.heard, heard), (self.asked, asked), (self.told, told), (self.launched, launched)):
            where[step] = what
            where[step] -= base
        self.launch_seconds[step] = self.launched[step] - self.told[step]
        self.ready[step] = ready - base
        self.cpu[step] += busy
        return base


def _lognormal(rng: np.random.Generator, drawn: tuple[float, float], shape: tuple[int, int]) -> Array:
    median, spread = drawn
    values: Array = median * np.exp(rng.normal(0, spread, shape))
    return values
