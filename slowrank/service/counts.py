"""What became of the pages that were asked for: the service's books about its own reading. No clock, no IO."""

from __future__ import annotations

from dataclasses import dataclass, field

from collector import exported
from collector.engines.kinds import PATHS
from collector.exporter import Distribution
from collector.model import Page


@dataclass(slots=True)
class Pages:
    """One source of one node since the start. Seconds and bytes are sums."""

    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    bytes: int = 0
    good: float | None = None  # unix seconds at which the newest usable page came
    error: str | None = None  # of the newest, if it was none

    def note(self, page: Page) -> None:
        """A page."""
        outcome = "ok" if page.error is None else "unusable" if page.status == 200 else f"http_{page.status}" if page.status else "no_reply"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.seconds += page.took
        self.bytes += len(page.body)
        self.error = page.error
        if page.error is None:
            self.good = page.arrived


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
        self.late: dict[str, Distribution] = {}  # by source: s that pages of all nodes were asked for late, which is our doing

    def note(self, page: Page) -> None:
        """Book one page."""
        source = source_of(page)
        self.pages.setdefault((page.node, source), Pages()).note(page)
        self.late.setdefault(source, Distribution(exported.LATE_BOUNDS)).see(page.late)
