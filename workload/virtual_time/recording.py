"""A capture file of a simulation: gzip over JSON lines, a header and then one page a line, as `slowrank record` writes it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from isal import isal_zlib

from workload.config import ClusterConfig
from workload.virtual_time.columns import Column
from workload.virtual_time.hosts import Array
from workload.virtual_time.pages import LOADS_TYPE, METRICS_TYPE, LoadsPage, MetricsPage
from workload.virtual_time.snapshots import Snapshot

FORMAT = "slowrank.capture/1"
ENGINE = "http://127.0.0.1:30000"  # SGLang's default port; a simulation has no address of its own
EXPORTER = "http://127.0.0.1:9400/metrics"  # dcgm-exporter's default port
START = 1_767_225_600.0  # 2026-01-01T00:00:00Z: a simulation has no date either, and the same one makes the same file
_TOOK = 0.002  # seconds that a page is said to have taken
# ISA-L's: 16 MB of pages, ten minutes of 8 ranks, become 1.2 MB in 10 ms; zlib's level 1 makes 1.3 MB of them in 41 ms
_LEVEL = 1
_GZIP = 31  # the wbits for a gzip header


class Recording:
    """Writes pages as they come; a sink of `simulate`. Raises FileExistsError rather than overwrite a file."""

    def __init__(self, path: Path, *, start: float = START, engine: str = ENGINE) -> None:
        self.pages = 0
        self._start = start
        self._engine = engine
        self._file = path.open("xb")
        self._packer = isal_zlib.compressobj(_LEVEL, wbits=_GZIP)
        self._put({"format": FORMAT, "redacted": True, "created": start})

    def open(self, config: ClusterConfig, columns: list[Column]) -> None:
        """What is recorded: called by `simulate` before the first page."""
        self._loads = LoadsPage(config, self._start)
        self._metrics = MetricsPage(config, columns)

    def loads(self, at: float, snapshots: list[Snapshot]) -> None:
        self._page("sglang-loads", at, LOADS_TYPE, self._loads.quoted(at, snapshots))

    def metrics(self, at: float, values: Array) -> None:
        self._page("sglang-metrics", at, METRICS_TYPE, self._metrics.quoted(values))

    def cards(self, at: float, page: str) -> None:
        """A page of the cards' exporter, which is a server of its own."""
        self._page("dcgm", at, METRICS_TYPE, msgspec.json.encode(page), node=EXPORTER)

    def close(self) -> None:
        if not self._file.closed:
            with self._file:
                self._file.write(self._packer.flush())

    def _page(self, source: str, at: float, content_type: str, quoted: bytes, node: str = "") -> None:
        line: dict[str, object] = {
            "engine": self._engine,
            "node": node or self._engine,
            "source": source,
            "arrived": self._start + at,
            "took": _TOOK,
            "status": 200,
            "content_type": content_type,
            "text": msgspec.Raw(quoted),
        }
        self._put(line)
        self.pages += 1

    def _put(self, line: dict[str, object]) -> None:
        self._file.write(self._packer.compress(msgspec.json.encode(line) + b"\n"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
