"""The healthy past of an engine, kept while it is watched: what a slowdown of the whole group is measured against. No clock, no IO.

A window may serve when its verdict was healthy, nothing was suspected, and it has grown old without a suspicion: the windows just before
one may hold the beginning of what was found, and are dropped. It reaches back further than the verdict did, to the last suspicion at most:
half a minute shows one burst of a traffic, or none. So a fault is never trained on, unless it was there from the start and looks like
health.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from collector.model import Window

KEPT = 8
"""Candidates at a time: with one each eighth of the age, the past is never older than twice the age while the engine is healthy."""

REACH = 120.0
"""s that a candidate reaches back. Against 30 s of past, 14 of 364 windows of 30 s with a fault and 24 of 480 healthy ones were blamed for
another class (seeds 0 to 9, six traffics), against 120 s 2 and none: traffic that comes in bursts each 50 s shows two of them, and a rank's
luck in dealing changes sides. A window of 8 ranks takes 90 KB of memory, a candidate each; with 300 s a fault that the traffic itself
shows now and then is found less often (prefill_drags_decode 8 of 18 instead of 11)."""


class Past:
    """`age` in seconds: the least age of a window that serves. `serving`: one that did before a restart."""

    def __init__(self, age: float, serving: Window | None = None) -> None:
        self._age = age
        self._waiting: deque[Window] = deque()  # oldest first, not old enough yet
        self._serving = serving
        self._clear = float("-inf")  # end of the last window under a suspicion, unix seconds

    @property
    def serving(self) -> Window | None:
        """The window that serves now."""
        return self._serving

    def note(self, window: Window, *, healthy: bool, suspected: bool, reach: Callable[[float], Window]) -> None:
        """A window was judged. `suspected`: something is open on the engine, whatever this verdict says. `reach`: so many seconds up to
        the window's end, or as many of them as were read."""
        self._ripen(window.end)
        if suspected:
            self._waiting.clear()
            self._clear = window.end
        elif healthy and (not self._waiting or window.end - self._waiting[-1].end >= self._age / KEPT):
            seconds = min(REACH, window.end - self._clear)
            self._waiting.append(reach(seconds) if seconds > window.end - window.start else window)
            while len(self._waiting) > KEPT + 1:
                self._waiting.popleft()

    def baseline(self, now: float) -> Window | None:
        """The newest window that is old enough; None before there is one. `now`: unix seconds, the end of the window to be judged."""
        self._ripen(now)
        return self._serving

    def _ripen(self, now: float) -> None:
        while self._waiting and now - self._waiting[0].end >= self._age:
            self._serving = self._waiting.popleft()
