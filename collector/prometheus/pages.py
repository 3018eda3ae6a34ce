"""Samples back into the pages that they were scraped from, one a scrape, for a live reading's own path. Pure.

All samples of one scrape carry its time, in milliseconds: a page is what has the same time on one node. A series without a sample there
was not on the page.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

import numpy as np

from collector.model import Page, Source
from collector.prometheus.engines import Found
from collector.prometheus.nodes import Node
from collector.prometheus.queries import VLLM

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def pages(found: Found) -> Iterator[Page]:
    """The pages of all nodes of an engine, in order of time."""
    return heapq.merge(*(_of_node(found.id, node) for node in found.nodes), key=lambda page: page.arrived)


def _of_node(engine: str, node: Node) -> Iterator[Page]:
    source = Source.VLLM_METRICS if node.kind == VLLM else Source.SGLANG_METRICS
    times = np.unique(np.concatenate([series.times for series in node.series]))
    prefixes = [_prefix(series.name, series.labels) for series in node.series]
    values = np.full((len(times), len(node.series)), np.nan)
    for k, series in enumerate(node.series):
        values[np.searchsorted(times, series.times), k] = series.values
    url = f"http://{node.instance}"
    for at, row in zip(times.tolist(), values, strict=True):
        seen = np.flatnonzero(~np.isnan(row)).tolist()
        body = "".join([f"{prefixes[k]} {value!r}\n" for k, value in zip(seen, row[seen].tolist(), strict=True)])
        if body:
            yield Page(engine, url, source, at / 1000.0, 0.0, 200, CONTENT_TYPE, body.encode())


def _prefix(name: str, labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inside}}}" if inside else name
