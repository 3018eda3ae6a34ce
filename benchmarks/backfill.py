"""A capture's pages as a server would have scraped them, for Prometheus (OpenMetrics) and VictoriaMetrics (its import).

Two ways of the same past: the engines' own `/metrics`, and our exporter's `slowrank_...` series, which hold `/v1/loads` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from collector import signals
from collector.capture import read_capture
from collector.engines import sglang, sglang_loads, sglang_metrics
from collector.exported import ENGINE, EXPECTED_RANKS, KV_BYTES, of_signals
from collector.exposition import Parser
from collector.model import Facts, Source
from collector.signals import CATALOGUE, Scope

Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]  # name, labels
Table: TypeAlias = dict[Key, list[tuple[float, float]]]  # unix seconds, value; in order of time

TARGET = {"instance": "127.0.0.1:30000", "job": "sglang"}


def scraped(capture: Path, every: float, target: Mapping[str, str] = TARGET) -> Table:
    """The engine's own metrics pages, one each `every` seconds."""
    table: Table = {}
    parser = Parser()
    last = float("-inf")
    for page in read_capture(capture):
        if page.source is Source.SGLANG_METRICS and page.arrived >= last + every - 1e-6:
            last = page.arrived
            for name, labels, value in parser.parse(page.body).samples:
                table.setdefault((name, tuple((dict(labels) | dict(target)).items())), []).append((page.arrived, value))
    return table


def exported(capture: Path, every: float, target: Mapping[str, str] | None = None) -> Table:
    """What an exporter beside the engine shows each `every` seconds: the newest value of every signal of the catalogue."""
    target = {"instance": "127.0.0.1:9466", "job": "slowrank"} if target is None else target
    families = of_signals()
    reader = sglang.Reader()
    held: dict[str, dict[int, float]] = {}
    facts = Facts()
    table: Table = {}
    last = float("-inf")
    for page in read_capture(capture):
        if page.source not in sglang.PATHS:
            continue
        reading = reader.read(page)
        facts = facts.merged(reading.facts)
        for signal, values in reading.values.items():
            held.setdefault(signal, {}).update(values)
        if page.source is Source.SGLANG_METRICS and page.arrived >= last + every - 1e-6:
            last = page.arrived
            for signal, values in _derived(held).items():
                for rank, value in values.items():
                    labels = {"engine": page.engine} | ({"rank": str(rank)} if CATALOGUE[signal].scope is Scope.RANK else {})
                    key = families[signal].name, tuple((labels | dict(target)).items())
                    table.setdefault(key, []).append((page.arrived, value))
            for name, more, value in _told(facts):
                table.setdefault((name, tuple(({"engine": page.engine} | more | dict(target)).items())), []).append((page.arrived, value))
    return table


def _told(facts: Facts) -> Iterator[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of what an exporter says of the engine as a whole."""
    words = {name: getattr(facts, name) or "" for name in ("role", "model", "version", "accelerator", "clock")}
    yield ENGINE, {"target": TARGET["instance"], "kind": "sglang", **{name: str(word) for name, word in words.items()}}, 1.0
    if facts.expected_ranks is not None:
        yield EXPECTED_RANKS, {}, float(facts.expected_ranks)
    if facts.kv_bytes_per_token is not None:
        yield KV_BYTES, {}, facts.kv_bytes_per_token


def _derived(held: Mapping[str, Mapping[int, float]]) -> dict[str, Mapping[int, float]]:
    """The catalogue's signals of what was read; helpers become the signals that are made of them."""
    out = {signal: values for signal, values in held.items() if signal in CATALOGUE}
    stages, sync = held.get(sglang_metrics.STAGES, {}), held.get(signals.SYNC_WAIT, {})
    out[signals.SCHEDULER_WORK] = {rank: max(stages[rank] - sync[rank], 0.0) for rank in stages if rank in sync}
    rows, tokens = held.get(sglang_loads.ROWS, {}), held.get(sglang_loads.TOKENS, {})
    out[signals.ACCEPT_LENGTH] = {rank: tokens[rank] / rows[rank] for rank in rows if rows[rank] > 0 and rank in tokens}
    return out


def openmetrics(table: Table) -> Iterator[str]:
    """Lines that `promtool tsdb create-blocks-from openmetrics` takes: by family, with times, ended by # EOF."""
    name = ""
    for (family, labels), samples in sorted(table.items()):
        if family != name:
            name = family
            yield f"# TYPE {name} unknown\n"
        yield from _lines(family, labels, samples, 1)
    yield "# EOF\n"


def importable(table: Table) -> Iterator[str]:
    """Lines that VictoriaMetrics' /api/v1/import/prometheus takes: times in milliseconds."""
    for (family, labels), samples in table.items():
        yield from _lines(family, labels, samples, 1000)


def _lines(name: str, labels: Iterable[tuple[str, str]], samples: Iterable[tuple[float, float]], per_second: int) -> Iterator[str]:
    series = name + "{" + ",".join(f'{label}="{value}"' for label, value in labels) + "}"
    for at, value in samples:
        yield f"{series} {value!r} {round(at * 1000) if per_second == 1000 else format(at, '.3f')}\n"
