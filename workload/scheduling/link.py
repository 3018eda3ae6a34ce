"""A rank's network link for KV: one transfer after the other, at so many bytes a second. Pure; time is an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from workload.scheduling.request import Request


@dataclass(slots=True, eq=False)
class Transfer:
    request: Request
    size: int  # bytes
    since: float  # when it could have begun, seconds
    left: float  # bytes
    ended: float = 0.0


class KvLink:
    """`factor` multiplies the speed from the next `advance` on: below 1 the rank's link is degraded."""

    def __init__(self, gb_per_second: float) -> None:
        self.factor = 1.0
        self._speed = gb_per_second * 1e9
        self._queue: deque[Transfer] = deque()
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, request: Request, size: int, now: float) -> None:
        """Queues a transfer that can begin at `now`."""
        self._queue.append(Transfer(request, size, now, float(size)))

    def drop(self, request: Request) -> None:
        """Forgets the transfer of an aborted request."""
        self._queue = deque(t for t in self._queue if t.request is not request)

    def advance(self, now: float) -> list[Transfer]:
        """Moves bytes until `now`; returns what has arrived, each with the time of its end."""
        speed = self._speed * self.factor
        done = []
        while self._queue and speed > 0:
            head = self._queue[0]
            begin = max(self._now, head.since)
            end = begin + head.left / speed
            if end > now:
                head.left -= max(0.0, now - begin) * speed
                break
            head.ended = self._now = end
            done.append(self._queue.popleft())
        self._now = now
        return done
