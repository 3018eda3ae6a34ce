"""Ways to read less than everything: what each lacks, and the table of what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collector import signals
from collector.model import Page, Source, Window

EVERY = 15.0
"""Seconds between scrapes of a usual Prometheus."""
SLOW_WINDOW = 60.0
"""Seconds read at that cadence: four scrapes."""

METRICS = frozenset({Source.SGLANG_METRICS, Source.VLLM_METRICS})
"""What is read of an engine's /metrics, the page that costs it most."""

_OPTIONAL = tuple(name for name, signal in signals.CATALOGUE.items() if signal.optional)


@dataclass(frozen=True, slots=True)
class Ablation:
    """What is taken away: signals from the windows, or pages before they are read."""

    name: str
    lacks: tuple[str, ...] = ()
    pages: Callable[[Sequence[Page]], Sequence[Page]] | None = None
    window: float = 0.0  # seconds read; 0: as usual

    def cut(self, window: Window) -> Window:
        """The window without the signals that this lacks."""
        for name in self.lacks:
            window = window.without(name)
        return window


def thinned(pages: Sequence[Page], every: float = EVERY) -> list[Page]:
    """The first page of each source in every period."""
    kept: dict[tuple[str, Source, int], Page] = {}
    for page in pages:
        kept.setdefault((page.node, page.source, int(page.arrived // every)), page)
    return list(kept.values())


def metrics_each(pages: Sequence[Page], every: float) -> list[Page]:
    """All pages but those of /metrics, and of these the first of each node in every period."""
    kept = {id(page) for page in thinned([page for page in pages if page.source in METRICS], every)}
    return [page for page in pages if page.source not in METRICS or id(page) in kept]


def _no_loads(pages: Sequence[Page]) -> list[Page]:
    return [page for page in pages if page.source is not Source.SGLANG_LOADS]


ABLATIONS = (
    Ablation("no sync wait", (signals.SYNC_WAIT,)),
    Ablation("no stage seconds", (signals.RECV_WAIT, signals.SCHEDULER_WORK)),
    Ablation("no /v1/loads", pages=_no_loads),
    Ablation("no hardware", _OPTIONAL),
    Ablation("scrapes at 15 s", pages=thinned, window=SLOW_WINDOW),
)
