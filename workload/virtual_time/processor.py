"""When one rank's process has the CPU. It may be stopped, for good or for a share of every period; work goes on where it was left."""

from __future__ import annotations

import math


class Processor:
    def __init__(self) -> None:
        self._stops: list[list[float]] = []  # [begin, end], the end infinite until it is known
        self._thefts: list[list[float]] = []  # [begin, end, share, period]

    @property
    def disturbed(self) -> bool:
        return bool(self._stops or self._thefts)

    def stop(self, now: float) -> None:
        self._stops.append([now, math.inf])

    def resume(self, now: float) -> None:
        """Ends all stops; harmless where there is none."""
        for stop in self._stops:
            stop[1] = min(stop[1], now)

    def starve(self, now: float, share: float, period: float) -> list[float]:
        """Takes the CPU for the first `share` of each `period` from now on, until the handle is given to `feed`."""
        theft = [now, math.inf, share, period]
        self._thefts.append(theft)
        return theft

    def feed(self, theft: list[float], now: float) -> None:
        theft[1] = now

    def forget(self, before: float) -> None:
        """Drops what ended before the time: nothing will ask about it any more."""
        self._stops = [stop for stop in self._stops if stop[1] > before]
        self._thefts = [theft for theft in self._thefts if theft[1] > before]

    def after(self, start: float, work: float) -> float:
        """When `work` seconds of CPU that could begin at `start` are done; infinite while the process is stopped for good."""
        if not self._stops and not self._thefts:
            return start + work
        now = self._awake(start)
        while now < math.inf:
            stolen = self._next_stop(now)
            if now + work <= stolen:
                return now + work
            work -= stolen - now
            now = self._awake(stolen)
        return now

    def _awake(self, now: float) -> float:
        """The first moment not before `now` at which nothing keeps the process from running."""
        while True:
            later = now
            for begin, end in self._stops:
                if begin <= later < end:
                    later = end
            for begin, end, share, period in self._thefts:
                if begin <= later < end:
                    turn = begin + math.floor((later - begin) / period + _ROUNDING) * period
                    if later < turn + share * period - _TINY:
                        later = min(turn + share * period, end)
            if later == now:
                return now
            now = later

    def _next_stop(self, now: float) -> float:
        """The next moment after `now`, at which the process runs, that takes it off the CPU."""
        found = min((begin for begin, _ in self._stops if begin > now), default=math.inf)
        for begin, end, _, period in self._thefts:
            turn = begin if now < begin else begin + (math.floor((now - begin) / period + _ROUNDING) + 1) * period
            if turn < end:
                found = min(found, turn)
        return found


_TINY = 1e-9  # seconds, below which the end of a theft is reached
_ROUNDING = 1e-6  # of a period: its end, computed with another rounding, belongs to the next one
