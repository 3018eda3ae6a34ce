"""How much of what the running requests may still generate a newcomer has to leave free: SGLang's new-token ratio."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workload.scheduling.request import Request

# SGLang begins at 0.7, and multiplies by 0.3 under attention DP: it admits more than may fit, and takes requests back when it must.
INITIAL = 0.7 * 0.3
_LEAST = INITIAL * 0.14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
_DECAY = (INITIAL - _LEAST) / 600  # per decode step, SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
_AFTER_RETRACTION = 20  # tokens that each request shall be able to make before the next one, SGLANG_RETRACT_DECODE_STEPS
CLIP = 4096  # no request is expected to make more than this, SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION


class NewTokenRatio:
    """Falls with every decode that goes well, and jumps to what the batch shows when one did not."""

    def __init__(self) -> None:
        self.value = INITIAL

    def decoded(self, steps: int = 1) -> None:
        if self.value > _LEAST:
            self.value = max(self.value - steps * _DECAY, _LEAST)

    def retracted(self, left: Iterable[Request]) -> None:
        """After a retraction: the share of their output that the requests `left` will have made 20 tokens from now."""
        made = wanted = 0
        for request in left:
            made += request.scheduled + _AFTER_RETRACTION
            wanted += request.output
        self.value = min(1.0, made / (wanted + 1))

    def idle(self) -> None:
        self.value = INITIAL

    def leaves(self, free: int, running: Sequence[Request]) -> bool:
        """Whether more than the running requests' reserve stays free when `free` tokens do."""
        if free > self.value * CLIP * len(running):  # the most that it can be: no need to add up
            return True
        return free > self.value * sum([min(r.output - r.scheduled, CLIP) for r in running])


def needs(request: Request) -> int:
    """Tokens that a newcomer must find free: its context, and its own answer in full."""
    return request.context + min(request.to_come, CLIP)
