"""What can be read of the node that we run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from collector.hardware import nvml, procfs
from collector.model import Source

NODE = "localhost"
CONTENT_TYPE = "application/json"


_USUAL_PORTS = {"http": 80, "https": 443}


def lookers(sources: frozenset[Source], nodes: Sequence[str] = ()) -> Iterator[tuple[Source, Callable[[], bytes]]]:
    """For each local source asked for, the function that looks. `nodes`: the engine's base URLs, whose ports tell its processes from those
    of others. Raises ConfigError when there is nothing to look at here."""
    if Source.PROCFS in sources:
        urls = [urlsplit(node) for node in nodes]
        yield Source.PROCFS, procfs.Looker({url.port or _USUAL_PORTS.get(url.scheme, 0) for url in urls}).look
    if Source.NVML in sources:
        yield Source.NVML, nvml.Looker().look
