"""Whose card is slow, from identical prompts that were pinned to one rank after the other. Pure.

In a lockstep all ranks' steps are equally long, so no engine metric names a slow card. A prompt on one rank makes that rank's card the one
with work: its attention and projections set the step, and what differs between ranks is their speed. So much more of the step is
everybody's (experts, collectives, a fixed delay) that a card with 20 % less clock shows as 7 to 8 %; what slows every step by the same time
shows on no rank.

A round asks each rank once, in random order. Chance alone would deal the times of a round to the ranks in any order, whatever the engine's
load does meanwhile: that makes the test exact without any model of the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from collector.model import FloatArray
from diagnose import lockstep

LEAST = 0.04
"""Slowness of a probe that is worth a name, a share of its time: a virtual H20-3e with 20 % less clock lengthens a prompt of 8,192 tokens
by 0.065 to 0.08 (benchmarks/probe.py); what that is of half the loss."""

CLEAR = 1.5 * LEAST
"""Slowness that must be excluded for every rank to call them level. At twice LEAST, 2 of 20 runs with a fifth less clock on one card were
called level (virtual time, chat), at this none."""

ERROR = 0.01
"""Chance that a run on alike cards names one, all looks together."""

FIRST_LOOK, EVERY = 4, 2
"""Rounds before the first look, and between two. With 16 ranks 4 rounds can reach 16 x 16^-4 = 0.0002, below an even share of ERROR;
2 never can."""

ROUNDS = 16
"""Rounds at most. With 2 ranks, where chance is a coin, 11 are needed to reach 2 x 2^-11 = 0.001, below an even share of ERROR. After
12 a card with a fifth less clock was named in 16 of 20 runs, after 16 in 18 (virtual time, chat)."""

CLIP = 4.5
"""Median sizes of a difference at which one is cut: 3 standard deviations of even scatter, which 3 of 1,000 pass. A probe beyond met
something else, and may not outweigh those that did not. Dealing a round's differences to other ranks leaves the median as it is."""

SURE = 3.0
"""Standard errors between a rank's mean and the slowness excluded for it: 0.1 % one-sided, for up to 8 ranks together below ERROR."""

_DEALS = 20_000  # random deals of the test: at 0.002 its own error is 0.0003


class Outcome(StrEnum):
    """What the rounds say. The three answers, and that it is too early for one."""

    SLOW = "slow"
    LEVEL = "level"
    OPEN = "open"  # all rounds are over, and the times scatter too much
    MORE = "more"


@dataclass(frozen=True, slots=True)
class Standing:
    """One rank: `slower` than its peers by this share of a probe's time (median of its rounds), `at_most` by this, `median` s per token."""

    rank: int
    slower: float
    at_most: float
    median: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ranks` are the slow ones, worst first; `chance` is that of such a difference among alike cards, of the last rank tested."""

    outcome: Outcome
    ranks: tuple[int, ...]
    standings: tuple[Standing, ...]
    rounds: int
    chance: float

    @property
    def excluded(self) -> float:
        """Slowness of a probe that no rank has, as a share: what LEVEL and OPEN rule out."""
        return max((s.at_most for s in self.standings if s.rank not in self.ranks), default=0.0)


def looks() -> tuple[int, ...]:
    """The rounds after which a verdict is sought."""
    return tuple(range(FIRST_LOOK, ROUNDS + 1, EVERY))


def judge(ranks: Sequence[int], rounds: Sequence[Sequence[float]], seed: int = 0) -> Verdict:
    """`rounds[b][i]` is what a prompt took on `ranks[i]` in round b, seconds per token that the rank prefilled meanwhile.

    Raises ValueError for fewer than two ranks, or a time that is not positive and finite. `seed` draws the deals of the test.
    """
    times = np.asarray(rounds, dtype=float).reshape(len(rounds), -1) if rounds else np.empty((0, len(ranks)))
    if len(ranks) < 2 or times.shape[1] != len(ranks):
        raise ValueError(f"{len(ranks)} ranks and rounds of {times.shape[1]} times: a round has one time for each of two ranks or more")
    if not (np.isfinite(times) & (times > 0)).all():
        raise ValueError("a time is zero, negative or not finite; a probe that failed belongs into no round")
    done = len(rounds)
    if done not in looks():
        return Verdict(Outcome.MORE, (), (), done, 1.0)
    logs = np.log(times)
    standings = _standings(ranks, times, logs)
    slow, chance = _slow(logs, seed)
    named = tuple(ranks[i] for i in sorted(slow, key=lambda i: -standings[i].slower))
    if named:
        return Verdict(Outcome.SLOW, named, standings, done, chance)
    if max(s.at_most for s in standings) < CLEAR:
        return Verdict(Outcome.LEVEL, (), standings, done, chance)
    return Verdict(Outcome.OPEN if done == ROUNDS else Outcome.MORE, (), standings, done, chance)


def _above(logs: FloatArray) -> FloatArray:
    """(B, R) each time over the median of its round's others, as a logarithm; cut at CLIP, and never below what is worth a name."""
    above: FloatArray = np.array([row - lockstep.peers_median(row) for row in logs])
    most = max(CLIP * float(np.median(np.abs(above))), float(np.log1p(LEAST)))
    cut: FloatArray = np.clip(above, -most, most)
    return cut


def _standings(ranks: Sequence[int], times: FloatArray, logs: FloatArray) -> tuple[Standing, ...]:
    above = _above(logs)
    mean = above.mean(axis=0)
    rounds, width = above.shape
    # each rank's own scatter around its mean, all ranks together: of a few rounds alone a rank's would be a guess
    spread = float(np.sqrt(((above - mean) ** 2).sum() / ((rounds - 1) * width)))
    typical = np.median([row - lockstep.peers_median(row) for row in logs], axis=0)  # not cut: a slow rank's own times may be all beyond
    bound = np.expm1(np.maximum(mean, typical) + SURE * spread / np.sqrt(rounds))
    slower, middle = np.expm1(typical), np.median(times, axis=0)
    return tuple(Standing(r, float(s), float(b), float(m)) for r, s, b, m in zip(ranks, slower, bound, middle, strict=True))


def _slow(logs: FloatArray, seed: int) -> tuple[list[int], float]:
    """Indices of slow ranks, and the chance of the last test. One after the other, each against those that are left, and
    always fewer than half: more have no majority of healthy peers to be told by."""
    left, found, chance = list(range(logs.shape[1])), list[int](), 1.0
    rng = np.random.default_rng(seed)
    while len(left) >= 2 and 2 * (len(found) + 1) <= logs.shape[1]:
        above = _above(logs[:, left])
        mean = above.mean(axis=0)
        worst = int(mean.argmax())
        one = _chance(above, float(mean[worst]), rng)
        if not found:
            chance = one
        if one > ERROR / len(looks()) or np.median(above[:, worst]) < np.log1p(LEAST):
            break
        chance = one
        found.append(left.pop(worst))
    return found, chance


def _chance(above: FloatArray, observed: float, rng: np.random.Generator) -> float:
    """How often the ranks' largest mean is at least `observed` when each round's differences are dealt to the ranks at random."""
    rounds, width = above.shape
    total = np.zeros((_DEALS, width))
    for row in above:
        total += rng.permuted(np.broadcast_to(row, (_DEALS, width)), axis=1)
    reached = int((total.max(axis=1) / rounds >= observed - 1e-12).sum())
    return (1 + reached) / (1 + _DEALS)
