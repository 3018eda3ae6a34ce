"""How often an engine is read: as wanted, and slower where that would cost the engine more than its budget. No clock, no IO.

What a page costs the engine is taken to be the shortest of its last replies: an upper bound of the CPU behind it, as the rest is waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from collector.engines.kinds import PATHS
from collector.model import Page, Source
from slowrank.config.model import Scrape

LOADS, METRICS, INFO = Source.SGLANG_LOADS, Source.SGLANG_METRICS, Source.SGLANG_SERVER_INFO

REMEMBERED = 12
"""Replies of a page whose shortest counts: a minute at the default 5 s, so that one idle moment of a busy engine is among them."""

BURST = 4.0
"""Factor on the budget while something is suspected. Two windows later it is confirmed or gone: at the default budget 2% of one core for
a minute, when the answer is wanted most."""

SLOWEST = {LOADS: 5.0, METRICS: 60.0}
"""s; beyond it a window would hold too few pages to say anything, so the budget is overdrawn instead, which is exported."""

INFO_EVERY = 600.0
"""s between /server_info pages. All schedulers are asked for each, and what it says changes only when the engine restarts."""

HALF = 0.5
"""Share of the budget of each of the two pages."""


class Cadence(Mapping[Source, float]):
    """Seconds to the next page of each source, as `collector.scrape.scrape` asks for them."""

    def __init__(self, wanted: Scrape) -> None:
        self.wanted = wanted
        self.suspected = False  # whether answers are wanted sooner
        self._took: dict[tuple[str, Source], deque[float]] = {}

    def saw(self, page: Page) -> None:
        """A page came. Failures tell nothing of what rendering costs."""
        source = asked_as(page.source)
        if page.error is None and source in SLOWEST:
            self._took.setdefault((page.node, source), deque(maxlen=REMEMBERED)).append(page.took)

    def cost(self, source: Source) -> float:
        """s of a node's CPU that one page costs at most, of the node where it costs most; 0 while unknown."""
        return max((min(took) for (_, known), took in self._took.items() if known is source), default=0.0)

    def __getitem__(self, source: Source) -> float:
        if source is INFO:
            return INFO_EVERY
        if source not in SLOWEST:
            raise KeyError(source)
        wanted = self.wanted.loads if source is LOADS else self.wanted.metrics_suspected if self.suspected else self.wanted.metrics
        budget = HALF * self.wanted.budget * (BURST if self.suspected else 1.0)
        return max(wanted, min(self.cost(source) / budget, SLOWEST[source]))

    def __iter__(self) -> Iterator[Source]:
        return iter((LOADS, METRICS, INFO))

    def __len__(self) -> int:
        return 3


def asked_as(source: Source) -> Source:
    """The source as which a page was asked for: whose /metrics it is shows only when it has come."""
    return METRICS if PATHS.get(source) == PATHS[METRICS] else source
