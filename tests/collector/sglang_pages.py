"""Pages of SGLang that its own collectors printed, what the official parser reads of them, and windows as the store gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from collector.engines import sglang
from collector.model import Engine, Page, Reading, Source, Window

TESTS = Path(__file__).parents[1]
CAPTURES = TESTS / "captures" / "sglang-0.5.23"
CASES = TESTS / "field_cases"
T1, T2, TP4 = "tp8-dp8-ep8-t1.prom", "tp8-dp8-ep8-t2.prom", "tp4-dp2-ep4.prom"


def page(body: str | bytes, arrived: float = 1000.0, node: str = "http://h:30000") -> Page:
    raw = body.encode() if isinstance(body, str) else body
    return Page("h:30000", node, Source.SGLANG_METRICS, arrived, 0.1, 200, "text/plain; version=0.0.4", raw)


def capture(name: str, arrived: float = 1000.0, node: str = "http://h:30000") -> Page:
    return page((CAPTURES / name).read_bytes(), arrived, node)


def read(body: str | bytes) -> Reading:
    return sglang.read(page(body))


def case(name: str) -> str:
    return (CASES / name).read_text()


def said(reading: Reading) -> str:
    return "\n".join(map(str, reading.problems))


def official(name: str, sample: str, **where: str) -> dict[int, float]:
    """Sum per dp_rank of a sample by the official parser."""
    found: dict[int, float] = {}
    for family in text_string_to_metric_families((CAPTURES / name).read_text()):
        for one in family.samples:
            if one.name == sample and all(one.labels.get(k) == v for k, v in where.items()):
                rank = int(one.labels["dp_rank"])
                found[rank] = found.get(rank, 0.0) + one.value
    return found


def official_total(name: str, sample: str) -> dict[int, float]:
    """A front-end sample by the official parser, under the engine's row."""
    families = text_string_to_metric_families((CAPTURES / name).read_text())
    return {-1: sum(one.value for family in families for one in family.samples if one.name == sample)}


def made(values: dict[str, list[list[float]]], columns: int = 4) -> Window:
    """A window of two ranks and 2 s intervals as the store would give it."""
    return Window(
        Engine("e", "sglang"),
        np.linspace(1000.0, 1000.0 + 2 * columns, columns + 1),
        (0, 1),
        {k: np.array(v) for k, v in values.items()},
        9,
    )
