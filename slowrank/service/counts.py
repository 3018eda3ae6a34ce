"""What became of the pages that were asked for: the service's books about its own reading. No clock, no IO."""

from __future__ import annotations

from dataclasses import dataclass, field

from collector.engines.kinds import PATHS
from collector.model import Page


@dataclass(slots=True)
class Pages:
    """One source of one node since the start. Seconds and bytes are sums."""

    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    bytes: int = 0
    late: float = 0.0
    good: float | None = None  # unix seconds at which the newest usable page came
    error: str | None = None  # of the newest, if it was none
    _due: float | None = None  # when the next one should begin

    def note(self, page: Page, interval: float) -> None:
        """A page, and how long after its beginning the next is to begin."""
        outcome = "ok" if page.error is None else "unusable" if page.status == 200 else f"http_{page.status}" if page.status else "no_reply"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.seconds += page.took
        self.bytes += len(page.body)
        self.error = page.error
        if page.error is None:
            self.good = page.arrived
        began = page.arrived - page.took
        if self._due is not None:
            self.late += max(0.0, began - self._due)
        self._due = began + interval


def source_of(page: Page) -> str:
    """A page's source as our series name it: an engine's by its path, as it may not have come; a machine's by its kind."""
    path = PATHS.get(page.source)
    return page.source.value if path is None else path.rpartition("/")[2]


OF_ENGINE = frozenset(path.rpartition("/")[2] for path in PATHS.values())
"""Those that show that the engine itself answers: its machines may do so when it is gone."""


class Counts:
    """All sources of one engine's nodes."""

    def __init__(self) -> None:
        self.pages: dict[tuple[str, str], Pages] = {}  # (node, source)

    def note(self, page: Page, interval: float) -> None:
        """Book one page."""
        self.pages.setdefault((page.node, source_of(page)), Pages()).note(page, interval)
