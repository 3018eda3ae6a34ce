"""How fast pages are parsed, against prometheus_client's parser: `python benchmarks/exposition.py`. Needs no engine and no network.

The page is one of SGLang 0.5.23 with 8 ranks. A running engine's page keeps its series and their order from scrape to scrape while its
values change; here that is the page, alternated with the same page holding the values of a second start of the engine. That second
start's own page lists the same series in another order: alternating with that one shows what a page of a new shape costs.
Rounds are interleaved, times are CPU time, and the least of all rounds counts.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable
from pathlib import Path

import prometheus_client.parser

from collector.exposition import Parser

CAPTURES = Path(__file__).parents[1] / "tests" / "captures" / "sglang-0.5.23"
NEEDED = [
    "sglang:dp_attention_tokens_total",
    "sglang:dp_attention_pairs_total",
    "sglang:dp_attention_steps_total",
    "sglang:dp_attention_sync_wait_seconds_sum",
    "sglang:dp_attention_sync_wait_seconds_count",
    "sglang:scheduler_stage_seconds_total",
    "sglang:scheduler_process_cpu_seconds_total",
    "sglang:forward_execution_seconds_total",
    "sglang:num_retracted_requests_total",
    "sglang:cuda_graph_passes_total",
    "sglang:realtime_tokens_total",
    "sglang:eplb_balancedness",
    "sglang:eplb_gpu_physical_count",
]
ROUNDS, REPEATS = 30, 20

Samples = list[tuple[str, dict[str, str], float]]


def official(body: bytes) -> Samples:
    families = prometheus_client.parser.text_string_to_metric_families(body.decode())
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def ours(parser: Parser, body: bytes) -> Samples:
    return [(sample.name, dict(sample.labels), sample.value) for sample in parser.parse(body).samples]


def series_of(line: bytes) -> bytes:
    """A line's series without the process id, which differs between two starts."""
    return re.sub(rb',?pid="\d+"', b"", line.rpartition(b" ")[0])


def with_values_of(body: bytes, other: bytes) -> bytes:
    values = {series_of(line): line.rpartition(b" ")[2] for line in other.splitlines() if not line.startswith(b"#")}
    lines = (line if line.startswith(b"#") else line.rpartition(b" ")[0] + b" " + values[series_of(line)] for line in body.splitlines())
    return b"\n".join(lines) + b"\n"


def wanted(samples: Samples) -> Samples:
    names = {family + suffix for family in NEEDED for suffix in ("", "_sum", "_count", "_bucket")}
    return [sample for sample in samples if sample[0] in names]


def seconds(parse: Callable[[bytes], object], pages: list[bytes]) -> float:
    started = time.process_time()
    for page in pages:
        parse(page)
    return (time.process_time() - started) / len(pages)


def main() -> None:
    first = (CAPTURES / "tp8-dp8-ep8-t1.prom").read_bytes()
    second = (CAPTURES / "tp8-dp8-ep8-t2.prom").read_bytes()
    moved = with_values_of(first, second)
    changed = sum(a != b for a, b in zip(first.splitlines(), moved.splitlines(), strict=True))

    whole, needed = Parser(), Parser(NEEDED)
    for page in (first, moved, second, first):
        expected = official(page)
        if ours(whole, page) != expected or ours(needed, page) != wanted(expected):
            raise SystemExit("the samples differ from prometheus_client's: the figures would mean nothing")

    cases: dict[str, tuple[Callable[[bytes], object], list[bytes]]] = {
        "prometheus_client, whole page": (
            lambda page: list(prometheus_client.parser.text_string_to_metric_families(page.decode())),
            [first, moved],
        ),
        "whole page": (Parser().parse, [first, moved] * REPEATS),
        "what a diagnosis needs": (Parser(NEEDED).parse, [first, moved] * REPEATS),
        "whole page, order of series new each time": (Parser().parse, [first, second] * REPEATS),
        "what a diagnosis needs, order new each time": (Parser(NEEDED).parse, [first, second] * REPEATS),
        "whole page, first page of a parser": (lambda page: Parser().parse(page), [first, moved]),
        "what a diagnosis needs, first page of a parser": (lambda page: Parser(NEEDED).parse(page), [first, moved]),
    }
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, (parse, pages) in cases.items():
            best[name] = min(best[name], seconds(parse, pages))

    print(f"page: {len(first)} bytes, {len(ours(whole, first))} samples, {len(ours(needed, first))} of them needed;", end=" ")
    print(f"{changed} values change from page to page")
    print(f"samples: the same as prometheus_client's, whole and needed, on {len({first, moved, second})} pages")
    print(f"Python {platform.python_version()}, least CPU time of {ROUNDS} interleaved rounds\n")
    reference = best["prometheus_client, whole page"]
    for name, taken in best.items():
        print(f"{name:<48} {taken * 1e3:8.3f} ms/page {len(first) / taken / 1e6:8.1f} MB/s {reference / taken:7.1f}x")


if __name__ == "__main__":
    main()
