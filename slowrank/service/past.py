"""The healthy past of an engine, kept while it is watched: what a slowdown of the whole group is measured against. No clock, no IO.

A window may serve when its verdict was healthy, nothing was suspected in it, and it has grown old without a confirmed incident: the windows
just before one may hold the beginning of what was found, and are dropped. A suspicion that comes to nothing drops none: agents' traffic
raises one every few minutes, and would never have a past. It reaches back further than the verdict did, to the last suspicion at most:
half a minute shows one burst of a traffic, or none. So a fault is never trained on, unless it was there from the start and looks like
health.

Without a past, prompts that touch many steps, or few requests, are noted: that may be what the engine was built for, and only a past tells.
So until there is one a window with nothing but a note may serve too; else an engine with such traffic never got one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from collector.model import Window
from diagnose.incident_model import State

KEPT = 2
"""Candidates at a time: with one each half of the age, the past is never older than twice the age while the engine is healthy. They and
the past that serves take 27 KiB of memory per rank beside the 32 of the last minutes."""

REACH = 120.0
"""s that a candidate reaches back: four windows of half a minute. Of 414 windows with a fault 332 got its cause against 30 s of past and
three another class, 342 and none against 120 s; of 576 healthy ones 20 were blamed and 95 left open, against 6 and 39 (seeds 0 to 3, six
traffics). Against 300 s, 336 got it: what a traffic does by itself once in five minutes then passes for its habit. 8 ranks take 90 KB."""


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

    def note(
        self, window: Window, *, healthy: bool, noted: bool = False, open_: frozenset[State], reach: Callable[[float], Window]
    ) -> None:
        """A window was judged. `noted`: the verdict is a note and blames nobody. `open_`: the states of what is open on the engine and more
        than a note, whatever this verdict says. `reach`: so many seconds up to the window's end, or as many of them as were read."""
        self._ripen(window.end)
        if State.CONFIRMED in open_:
            self._waiting.clear()
        if open_ - {State.RESOLVED}:
            self._clear = window.end
        elif window.start >= self._clear and (healthy or (noted and self._serving is None)) and self._due(window.end):
            seconds = min(REACH, window.end - self._clear)
            self._waiting.append(reach(seconds) if seconds > window.end - window.start else window)
            while len(self._waiting) > KEPT + 1:
                self._waiting.popleft()

    def _due(self, end: float) -> bool:
        return not self._waiting or end - self._waiting[-1].end >= self._age / KEPT

    def baseline(self, now: float) -> Window | None:
        """The newest window that is old enough; None before there is one. `now`: unix seconds, the end of the window to be judged."""
        self._ripen(now)
        return self._serving

    def _ripen(self, now: float) -> None:
        while self._waiting and now - self._waiting[0].end >= self._age:
            self._serving = self._waiting.popleft()
