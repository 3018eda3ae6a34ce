"""The healthy past of an engine, kept while it is watched: what a slowdown of the whole group is measured against. No clock, no IO.

A window may serve when its verdict was healthy, nothing was suspected, and it has grown old without a suspicion: the windows just before
one may hold the beginning of what was found, and are dropped. So a fault is never trained on, unless it was there from the start and looks
like health.
"""

from __future__ import annotations

from collections import deque

from collector.model import Window

KEPT = 8
"""Candidates at a time: with one each eighth of the age, the past is never older than twice the age while the engine is healthy."""


class Past:
    """`age` in seconds: the least age of a window that serves. `serving`: one that did before a restart."""

    def __init__(self, age: float, serving: Window | None = None) -> None:
        self._age = age
        self._waiting: deque[Window] = deque()  # oldest first, not old enough yet
        self._serving = serving

    @property
    def serving(self) -> Window | None:
        """The window that serves now."""
        return self._serving

    def note(self, window: Window, *, healthy: bool, suspected: bool) -> None:
        """A window was judged. `suspected`: something is open on the engine, whatever this verdict says."""
        self._ripen(window.end)
        if suspected:
            self._waiting.clear()
        elif healthy and (not self._waiting or window.end - self._waiting[-1].end >= self._age / KEPT):
            self._waiting.append(window)
            while len(self._waiting) > KEPT + 1:
                self._waiting.popleft()

    def baseline(self, now: float) -> Window | None:
        """The newest window that is old enough; None before there is one. `now`: unix seconds, the end of the window to be judged."""
        self._ripen(now)
        return self._serving

    def _ripen(self, now: float) -> None:
        while self._waiting and now - self._waiting[0].end >= self._age:
            self._serving = self._waiting.popleft()
