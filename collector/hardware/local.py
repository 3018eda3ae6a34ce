"""What can be read of the node that we run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from collector.hardware import nvml, procfs
from collector.model import Source

NODE = "localhost"
CONTENT_TYPE = "application/json"


def lookers(sources: frozenset[Source]) -> Iterator[tuple[Source, Callable[[], bytes]]]:
    """For each local source asked for, the function that looks. Raises ConfigError when there is nothing to look at here."""
    if Source.PROCFS in sources:
        yield Source.PROCFS, procfs.Looker().look
    if Source.NVML in sources:
        yield Source.NVML, nvml.Looker().look
