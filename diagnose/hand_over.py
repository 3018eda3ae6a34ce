"""The hand-over between the prefill and the decode half of a split engine: who holds how many requests, and which link is slow. Pure."""

from __future__ import annotations

import numpy as np

from collector import promql, signals
from collector.model import Window
from diagnose import lockstep, sums
from diagnose.model import Evidence

QUEUES = {
    "prefill": (signals.BOOTSTRAP_QUEUE, signals.INFLIGHT_QUEUE),
    "decode": (signals.PREALLOC_QUEUE, signals.TRANSFER_QUEUE),
}
"""The queues that each role fills; the others stand at 0 there."""

HOLDS = {
    signals.BOOTSTRAP_QUEUE: ("that wait for the decode side", "whether the decode side has KV room, and its address reaches this rank"),
    signals.INFLIGHT_QUEUE: ("computed, with their KV still under way", "this rank's KV transfer speed against its peers'"),
    signals.PREALLOC_QUEUE: ("that wait for KV room", "this rank's KV usage, and which requests fill its pool"),
    signals.TRANSFER_QUEUE: (
        "whose KV has not arrived",
        "the KV transfer speed of the prefill ranks that send to it, and this card's network counters: its own link or theirs",
    ),
}
"""What a queue holds, and what would tell why."""

SLOWER = 0.5
"""Share of the peers' KV transfer speed below which the rank's link is the reason: healthy links measured 0.93 or more
(healthy_spread.py --engine prefill), and a path shared by two transfers gives each a half."""


def longest(window: Window, queue: str) -> tuple[str, int, float, float]:
    """The queue, the row on which it stands highest above the peers' median, its mean length there and theirs."""
    length = window.mean(queue)
    usual = sums.zeroed(lockstep.peers_median(length))
    row = lockstep.highest(length - usual)
    return queue, row, float(length[row]), float(usual[row])


def piles_up(window: Window, queue: str, backlog: float) -> str:
    """Words for a queue that grows on the middle rank too, by a quarter from the window's first half to its second; else nothing."""
    middle = lockstep.nanmedian(window.get(queue))
    middle = middle[np.isfinite(middle)]
    before, after = middle[: len(middle) // 2], middle[len(middle) // 2 :]
    if not len(before) or after.mean() < max(backlog, 1.25 * before.mean()):
        return ""
    return (
        f"requests {HOLDS[queue][0]} pile up on all ranks, from {before.mean():.0f} to {after.mean():.0f} on each: the other half of the"
        " split does not keep up, and its own pages must say why"
    )


def requests(window: Window) -> float:
    """Requests in the engine: SGLang counts the queues of the hand-over as waiting, but for what is in flight."""
    return float(sum(sums.total(window.mean(name)) for name in (signals.RUNNING, signals.WAITING, signals.INFLIGHT_QUEUE)))


def slow_link(window: Window, row: int) -> tuple[Evidence, ...]:
    """The rank's transfer speed if it is far below its peers'. Only a prefill server measures it; 0 is no transfer yet."""
    speed = window.mean(signals.TRANSFER_SPEED)
    usual = float(lockstep.peers_median(np.where(speed > 0, speed, np.nan))[row])
    if not (speed[row] > 0 and speed[row] < SLOWER * usual):
        return ()
    return (
        Evidence(
            signal=signals.TRANSFER_SPEED,
            what=f"its last KV transfers ran at {speed[row] / 1e9:.2f} GB/s, its peers' at {usual / 1e9:.2f} GB/s",
            observed=float(speed[row]),
            expected=usual,
            unit="B/s",
            rank=window.ranks[row],
            threshold=SLOWER * usual,
            promql=promql.TRANSFER_SPEED,
        ),
    )
