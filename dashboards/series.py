"""The engines' own series, and ours, as PromQL: how a rank is told in each spelling, and how its rate is taken. Pure text.

`per_rank` makes of any of these expressions one whose result has exactly the labels `engine` and `rank`.
"""

from __future__ import annotations

from enum import StrEnum

from collector import exported

WINDOW = "1m"
"""Of every recorded rate: four points at a scrape interval of 15 s, so that a missed scrape leaves a rate."""

ENGINE_LABEL, RANK_LABEL = "slowrank_engine", "slowrank_rank"
"""Labels that a scrape configuration may add: the engine that several targets make together, and the rank of a vLLM server that was
started by itself, which calls its only engine 0. Without them a target is an engine, named as slowrank names it: by its address."""


class Source(StrEnum):
    """Where series come from; the label `source` of what is recorded from them."""

    SGLANG = "sglang"  # its own /metrics page
    VLLM = "vllm"  # its own /metrics page
    SLOWRANK = "slowrank"  # our page, which holds what /v1/loads says too


_TOLD_BY = {
    Source.SGLANG: f"{ENGINE_LABEL}, {RANK_LABEL}, instance, dp_rank, tp_rank",
    Source.VLLM: f"{ENGINE_LABEL}, {RANK_LABEL}, instance, engine",
    Source.SLOWRANK: "engine, rank",
}
"""What tells one rank's series from another's. All else (pid, model, category, API server) is summed."""

_ONLY = {Source.SGLANG: 'dp_rank!="",pp_rank=~"0?"', Source.VLLM: "", Source.SLOWRANK: ""}
"""SGLang: a server with one rank has no dp_rank, and no peers; each pipeline stage records a copy of its own, so one is taken."""

_RANK_IS = {Source.SGLANG: "dp_rank", Source.VLLM: "engine"}


def rate(of: Source, name: str, window: str = WINDOW, /, **labels: str) -> str:
    """Rate per second of a counter, per rank (SGLang: per TP rank). `name` has no prefix; `labels` are regular expressions."""
    either = " or ".join(f"rate({series}[{window}])" for series in _spellings(of, name, labels))
    return f"sum by ({_TOLD_BY[of]}) ({either})"


def level(of: Source, name: str, /, **labels: str) -> str:
    """A gauge, per rank (SGLang: per TP rank, of which those that report nothing show 0)."""
    return f"max by ({_TOLD_BY[of]}) ({' or '.join(_spellings(of, name, labels))})"


def signal_rate(name: str, window: str = WINDOW) -> str:
    """Rate of a canonical signal that counts (`collector.signals`), from our own page."""
    return f"max by (engine, rank) (rate({exported.of_signals()[name].name}[{window}]))"


def signal_level(name: str) -> str:
    """A canonical signal that is a level, from our own page."""
    return f"max by (engine, rank) ({exported.of_signals()[name].name})"


def per_rank(source: Source, expression: str) -> str:
    """The expression with the labels `engine` and `rank` alone. Of the TP ranks of one rank the largest is taken: those that report
    nothing are zero, and those that do report the same steps."""
    if source is Source.SLOWRANK:
        return expression
    named = f'label_replace({expression}, "rank", "$1", "{_RANK_IS[source]}", "(.+)")'
    for label, value, of in (("rank", "$1", RANK_LABEL), ("engine", "http://$1", "instance"), ("engine", "$1", ENGINE_LABEL)):
        named = f'label_replace({named}, "{label}", "{value}", "{of}", "(.+)")'
    return f"max by (engine, rank) ({named})"


def _spellings(source: Source, name: str, labels: dict[str, str]) -> list[str]:
    """The series with a colon and, as OpenMetrics escapes it, without."""
    matchers = ",".join([*filter(None, [_ONLY[source]]), *(f'{label}=~"{value}"' for label, value in labels.items())])
    return [f"{source}{mark}{name}" + (f"{{{matchers}}}" if matchers else "") for mark in ":_"]
