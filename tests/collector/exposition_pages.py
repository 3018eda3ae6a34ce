"""Real pages, and samples in a form that compares: for the tests of the page parser."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as text_families

from collector.exposition import Exposition, Parser

TESTS = Path(__file__).parents[1]
SGLANG = TESTS / "captures" / "sglang-0.5.23"
VLLM = TESTS / "captures" / "vllm-0.32.0"
CASES = TESTS / "field_cases"
PAGES = sorted([*SGLANG.glob("*.prom"), *VLLM.glob("*.prom")])

NEEDED = [
    "sglang:dp_attention_tokens_total",
    "sglang:dp_attention_sync_wait_seconds_sum",
    "sglang:dp_attention_sync_wait_seconds_count",
    "sglang:scheduler_stage_seconds_total",
    "sglang:num_running_reqs",
    "sglang:eplb_balancedness",
    "sglang:eplb_gpu_physical_count",
    "vllm:num_requests_running",
    "vllm:time_to_first_token_seconds",
]

Plain = tuple[str, dict[str, str], float | str]


def plain(samples: Iterable[Any]) -> list[Plain]:
    """Samples as values that compare equal when they mean the same (NaN equals NaN)."""
    return [(s.name, dict(s.labels), "NaN" if math.isnan(s.value) else float(s.value)) for s in samples]


def official(page: str) -> list[Plain]:
    return plain(sample for family in text_families(page) for sample in family.samples)


def only(samples: list[Plain], families: list[str]) -> list[Plain]:
    """The samples of these families, with ':' and '_' taken for the same."""
    names = {(family + suffix).replace(":", "_") for family in families for suffix in ("", "_sum", "_count", "_bucket")}
    return [sample for sample in samples if sample[0].replace(":", "_") in names]


def parsed(page: str, families: list[str] | None = None) -> Exposition:
    return Parser(families).parse(page.encode())


def case(name: str) -> bytes:
    return (CASES / name).read_bytes()
