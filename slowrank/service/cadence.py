"""How often an engine is read: as wanted, and slower where that would cost the engine more than its budget. No clock, no IO.

What a /metrics page costs the engine is taken to be the shortest of its last replies: an upper bound of the CPU behind it, as the rest is
waiting. /v1/loads is not held against the budget: it is a read of shared memory, and its reply takes as long as the network and a busy
front end make it.
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

SLOWEST = 45.0
"""s between two /metrics pages; beyond it five minutes would hold too few of them to say anything, so the budget is overdrawn instead,
which is exported."""

INFO_EVERY = 600.0
"""s between /server_info pages. All schedulers are asked for each, and what it says changes only when the engine restarts."""


class Cadence(Mapping[Source, float]):
    """Seconds to the next page of each source, as `collector.scrape.scrape` asks for them."""

    def __init__(self, wanted: Scrape) -> None:
        self.wanted = wanted
        self.suspected = False  # whether answers are wanted sooner
        self._took: dict[str, deque[float]] = {}  # node -> s

    def saw(self, page: Page) -> None:
        """A page came. Failures tell nothing of what rendering costs."""
        if page.error is None and asked_as(page.source) is METRICS:
            self._took.setdefault(page.node, deque(maxlen=REMEMBERED)).append(page.took)

    @property
    def cost(self) -> float:
        """s of a node's CPU that one /metrics page costs at most, of the node where it costs most; 0 while unknown."""
        return max((min(took) for took in self._took.values()), default=0.0)

    def __getitem__(self, source: Source) -> float:
        if source is LOADS:
            return self.wanted.loads
        if source is INFO:
            return INFO_EVERY
        if source is not METRICS:
            raise KeyError(source)
        wanted = self.wanted.metrics_suspected if self.suspected else self.wanted.metrics
        budget = self.wanted.budget * (BURST if self.suspected else 1.0)
        return max(wanted, min(self.cost / budget, SLOWEST))

    def __iter__(self) -> Iterator[Source]:
        return iter((LOADS, METRICS, INFO))

    def __len__(self) -> int:
        return 3


def asked_as(source: Source) -> Source:
    """The source as which a page was asked for: whose /metrics it is shows only when it has come."""
    return METRICS if PATHS.get(source) == PATHS[METRICS] else source
