"""How long requests wait for their first token, and how much of that the ranks account for. Pure.

By Little's law the requests that queue on the ranks, over the first tokens per second, are the seconds that each queued; the ranks' time in
prefill steps over the same is what each was computed. Beside that a request waits for the step under way when it comes, its own steps, and
the one that brings its result. What is left was spent outside the ranks: in the tokeniser, the router, the detokeniser.

vLLM does not say how long ranks prefill, but how long each request queued and was computed, when it ends. Those that end in a window had
their first token before it, so they speak for the window only when requests come and go within half of it; and then the block in which
they queued and computed longest counts, against the one with the shortest wait: if anything changed, the ranks are believed to hold more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector import signals
from collector.model import FloatArray, Window, once_a_window
from diagnose import blocks, lockstep, sums
from diagnose.prefill_drag import PrefillDrag, prefill_drag

_ALWAYS = (signals.FIRST_TOKEN_TIME, signals.FIRST_TOKENS, signals.WAITING)
NEEDS = (*_ALWAYS, signals.PREFILL_BUSY)
ON_VLLM = (*_ALWAYS, signals.RUNNING, signals.REQUEST_QUEUE_TIME, signals.REQUEST_PREFILL_TIME, signals.FINISHED_REQUESTS)

BETTER = (signals.RUNNING, signals.GRAPH_STEPS, signals.EAGER_STEPS, signals.DECODE_STEPS, signals.DECODE_TIME)
"""What makes the answer surer where ranks tell it; vLLM's requests tell it all themselves."""

STAY = 0.5
"""Of the window, that a request may stay: as many of those that end in it then began in it as did not, and all that end in its last block.
Arithmetic."""

STEPS = 4.0
"""Steps that a request waits for at most without a queue: the one under way, the overlapped one behind it, its own last chunk, and the one
whose result is processed beside it. Arithmetic; chat in virtual time waits 2.7."""


ENOUGH = 12
"""First tokens from which their mean wait is compared with the past's: with 3 to 11 of long prompts, which are computed in one window and
answered in the next, healthy windows differed by up to 1.1 s, with 12 and more by 0.35 s (seeds 0 to 15, six traffics)."""


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """Means per streaming request that got its first token in the window, in seconds."""

    rate: float  # first tokens per second
    count: float  # of them in the window
    wait: float  # until the first token, at the front end
    queued: float  # in the ranks' queues
    computed: float  # in prefill steps; overlapped scheduling counts up to twice too much
    stepping: float  # STEPS of the longer of the mean step and the mean step with a prefill
    steady: FloatArray  # (B,) `wait` in each block of the window with first tokens

    @property
    def outside(self) -> float:
        """What no rank accounts for, in the block in which it is least: a queue that drains is counted after it is gone."""
        return max(0.0, self._own - self.stepping)

    def beyond(self, before: FirstTokens | None) -> float:
        """What no rank accounts for and the past had not either; `outside` where too few first tokens on either side leave that to chance.

        The past shows for how many steps a request really waits: without it the most that it can be is taken off.
        """
        if before is None or min(self.count, before.count) < ENOUGH:
            return self.outside
        usual = max(0.0, before.wait - before.queued - before.computed)
        return max(self.outside, self._own - usual * max(1.0, self.stepping / before.stepping))

    @property
    def _own(self) -> float:
        least = min(self.wait, float(self.steady.min())) if self.steady.size else self.wait
        return least - self.queued - self.computed


def needs(window: Window) -> tuple[str, ...]:
    """The signals that an engine of this kind tells it by."""
    return ON_VLLM if window.engine.kind == "vllm" else NEEDS


def first_tokens(window: Window, drag: PrefillDrag | None) -> FirstTokens | None:
    """The first tokens of a window; None when they, the queues or the steps were not observed, or nobody got one."""
    seconds, count = window.mean(signals.FIRST_TOKEN_TIME), window.mean(signals.FIRST_TOKENS)
    held = _by_requests(window) if window.engine.kind == "vllm" else _by_rank(window, drag)
    if held is None or not all(np.isfinite(known).any() for known in (seconds, count)):
        return None
    rate = sums.total(count)
    if not rate > lockstep.LEAST_RATE:
        return None
    each, per = (
        sums.by_column(blocks.means(window, signals.FIRST_TOKEN_TIME)),
        sums.by_column(blocks.means(window, signals.FIRST_TOKENS)),
    )
    some = per > lockstep.LEAST_RATE
    return FirstTokens(
        rate=rate,
        count=rate * (window.end - window.start),
        wait=sums.total(seconds) / rate,
        queued=held.queued,
        computed=held.computed,
        stepping=held.stepping,
        steady=each[some] / per[some],
    )


def stays_long(window: Window) -> bool:
    """Whether vLLM's requests stay so long that those which end in a window say nothing of those which begin in it."""
    held, ended = sums.total(window.mean(signals.RUNNING)), sums.total(window.mean(signals.FINISHED_REQUESTS))
    return held > STAY * (window.end - window.start) * ended


@dataclass(frozen=True, slots=True)
class _Held:
    """Seconds that a request is the ranks', as in FirstTokens."""

    queued: float
    computed: float
    stepping: float


def _by_rank(window: Window, drag: PrefillDrag | None) -> _Held | None:
    """From the ranks' queues and their time in prefill."""
    step = lockstep.group_rate(window)
    waiting, busy = window.mean(signals.WAITING), np.minimum(window.mean(signals.PREFILL_BUSY), 1.0)
    rate = sums.total(window.mean(signals.FIRST_TOKENS))
    if step is None or not rate > lockstep.LEAST_RATE or not all(np.isfinite(known).any() for known in (waiting, busy)):
        return None
    return _Held(
        queued=sums.total(waiting) / rate,
        computed=sums.total(busy) / rate,
        stepping=STEPS * max(1.0 / step, drag.prefill_step if drag is not None else 0.0),
    )


def _by_requests(window: Window) -> _Held | None:
    """From what vLLM counts of each request when it ends, and what queues now; None when none ended or its steps were not observed."""
    spent, steps = window.mean(signals.DECODE_TIME), window.mean(signals.DECODE_STEPS)
    stepped = (steps > lockstep.LEAST_RATE) & np.isfinite(spent)
    ended = sums.by_column(blocks.means(window, signals.FINISHED_REQUESTS))
    some = ended > lockstep.LEAST_RATE
    rate = sums.total(window.mean(signals.FIRST_TOKENS))
    if not stepped.any() or not some.any() or not rate > lockstep.LEAST_RATE:
        return None
    queued, computed = (
        float((sums.by_column(blocks.means(window, name))[some] / ended[some]).max())
        for name in (signals.REQUEST_QUEUE_TIME, signals.REQUEST_PREFILL_TIME)
    )
    now = sums.total(window.mean(signals.WAITING)) / rate
    return _Held(max(queued, now), computed, STEPS * float((spent[stepped] / steps[stepped]).max()))


@once_a_window
def usual_first_tokens(past: Window) -> FirstTokens | None:
    """The first tokens of a past, which is compared with again and again."""
    return first_tokens(past, prefill_drag(past))
