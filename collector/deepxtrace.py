"""DeepXTrace's log of who waits for whom in the experts' dispatch: the one source that tells a queue before a card from a late card. Pure.

A line of the log is `[2025-09-15T16:28:53.686] rank=4 [w0 w1 ...]`: the cycles, summed since the start, that EP rank 4 waited in dispatch
for the tokens of rank 0, 1, ... (antgroup/DeepXTrace, diagnose_dispatch). High column: that rank sends late. High row: tokens on their way
to that rank arrive late, whoever sends them. Waits across nodes are longer for everybody, so a rank is held against its own node's ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from collector import signals
from collector.engines.limits import MAX_RANKS
from collector.errors import SourceError
from collector.model import FloatArray, Problem, Window

NODE = 8
"""Cards that share a switch: what an HGX board holds. On a larger switch smaller groups are compared, which costs nothing."""

_LINE = re.compile(r"\[([0-9T:.\- ]{1,40})\]\s+rank=(\d{1,6})\s+\[([\d\s]+)\]")


@dataclass(frozen=True, slots=True)
class Matrix:
    """`waits[i, j]`: cycles that rank i waited for rank j, between the last two complete dumps, or since the start where `since_start`."""

    waits: FloatArray
    ended: str  # the log's own time of the last dump
    since_start: bool


def parse(text: str, where: str) -> Matrix:
    """The waits between the last two complete dumps of a log; of one dump, or when the sums fell because the job restarted, since the
    start. Dumps that lack a rank (a log that is being written, or cut off) are left out. SourceError when there is no complete dump."""
    dumps: list[tuple[str, FloatArray]] = []
    rows: dict[int, list[float]] = {}
    for stamp, number, waited in _LINE.findall(text):
        rank = int(number)
        if rank == 0 or rank in rows:
            rows = {}
        if rank and not rows:
            continue  # a dump begins with rank 0: the rest of one whose head is cut off
        rows[rank] = [float(cycles) for cycles in waited.split()]
        size = len(rows[rank])
        if 2 <= size <= MAX_RANKS and len(rows) == size and set(rows) == set(range(size)) and all(len(r) == size for r in rows.values()):
            dumps.append((stamp, np.array([rows[k] for k in range(size)])))
            rows = {}
    if not dumps:
        raise SourceError(f"{where}: no complete dump of `rank=N [...]` lines; give the log of DeepXTrace's diagnose_dispatch on rank 0")
    ended, last = dumps[-1]
    before = dumps[-2][1] if len(dumps) > 1 else None
    if before is None or before.shape != last.shape or (last < before).any():
        return Matrix(last, ended, True)
    return Matrix(last - before, ended, False)


def factors(waits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(R,) how much longer each rank waits than its node's others for the same senders, and (R,) how much longer it is waited for than they
    by the same receivers: medians over the partners. NaN where a rank has fewer than two others on its node, or nobody waits."""
    size = len(waits)
    return np.array([_over(waits, k) for k in range(size)]), np.array([_over(waits.T, k) for k in range(size)])


def _over(waits: FloatArray, rank: int) -> float:
    size = len(waits)
    mates = [k for k in range(size) if k // NODE == rank // NODE and k != rank]
    if len(mates) < 2:
        return float("nan")
    partners = [j for j in range(size) if j != rank]
    usual = np.array([np.median([waits[k, j] for k in mates if k != j]) for j in partners])
    mine = waits[rank, partners]
    if not (usual > 0).any():
        return float("nan")
    return float(np.median(mine[usual > 0] / usual[usual > 0]))


def attach(window: Window, matrix: Matrix, where: str) -> Window:
    """The window with DISPATCH_WAIT and DISPATCH_AWAITED, the same in all intervals: the log's clock has no zone, so that it is of this
    time is taken on trust and said in a Problem. A log of another number of ranks is not used, which is a Problem too."""
    size = len(matrix.waits)
    if window.ranks != tuple(range(size)):
        what = f"it holds {size} EP ranks, and the engine shows {len(window.ranks)} DP ranks; it was not used"
        return replace(window, problems=(*window.problems, Problem(where, what, "give the log of this engine")))
    row, column = factors(matrix.waits)
    shape = (size, len(window.edges) - 1)
    values = dict(window.values)
    for name, found in ((signals.DISPATCH_WAIT, row), (signals.DISPATCH_AWAITED, column)):
        values[name] = np.broadcast_to(found[:, None], shape).copy()
    span = "since the job's start" if matrix.since_start else "between its last two dumps"
    said = Problem(where, f"its waits {span}, the last at {matrix.ended}, are taken as those of this window", "compare the times")
    return replace(window, values=values, problems=(*window.problems, said))
