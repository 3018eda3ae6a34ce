"""Every query that is asked of a Prometheus server, named once. Pure.

What is asked follows from what the engine files read (their `ROWS`), so a renamed metric is one edit there. Raw samples are asked for, not
rates: a range selector in an instant query gives each sample with the time of its scrape (decision 0019).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from collector import exported
from collector.engines import sglang_experts, sglang_metrics, vllm_metrics
from collector.errors import ConfigError

SGLANG, VLLM, OWN = "sglang", "vllm", "slowrank"

_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\\n]|\\.)*)"\s*(?:,|$)')


@dataclass(frozen=True, slots=True)
class Query:
    """The raw samples of one metric of one kind of page."""

    kind: str  # SGLANG, VLLM or OWN
    metric: str  # without the prefix of its kind
    signals: tuple[str, ...]  # what is missing without it; helper signals, which begin with `_`, included
    narrowed: str = ""  # matchers for the part of the metric that is read

    @property
    def pattern(self) -> str:
        """Regular expression of the metric's spellings: ':' is '_' after a trip through newer exposition formats."""
        return f"{self.kind}{'_' if self.kind == OWN else '[:_]'}{self.metric}"

    def selector(self, match: str) -> str:
        """The instant selector, with a person's matchers (`matchers`)."""
        return "{" + ",".join(part for part in (f'__name__=~"{self.pattern}"', self.narrowed, match) if part) + "}"

    def samples(self, match: str, span_ms: int) -> str:
        """Raw samples of the last `span_ms` before the query's time."""
        return f"{self.selector(match)}[{span_ms}ms]"


def matchers(texts: Iterable[str]) -> str:
    """What a person gave with --match, as matchers that can stand in any selector. ConfigError for anything that is no list of them."""
    found = []
    for text in texts:
        place = 0
        while place < len(text):
            part = _MATCHER.match(text, place)
            if part is None:
                raise ConfigError(f"""--match {text[:80]!r} is no label matcher; write it as --match 'cluster="a"', or =~ with a pattern""")
            if part[1] == "__name__":
                raise ConfigError(
                    "--match may not name the metric (__name__): which are read follows from the engines; match a target's label"
                )
            found.append(f'{part[1]}{part[2]}"{part[3]}"')
            place = part.end()
    return ",".join(found)


def named(queries: Iterable[Query], match: str) -> str:
    """Series of each metric at the query's time, by name."""
    names = "|".join(query.pattern for query in queries)
    selector = ",".join(part for part in (f'__name__=~"{names}"', match) if part)
    return f"count by (__name__) ({{{selector}}})"


def density(query: Query, match: str, span_ms: int) -> str:
    """The most samples that a series of the metric has in the last `span_ms`: how much there is to read."""
    return f"max(count_over_time({query.samples(match, span_ms)}))"


def _sglang() -> tuple[Query, ...]:
    rows: dict[str, list[sglang_metrics.Row]] = {}
    for row in (*sglang_metrics.ROWS, *sglang_metrics.ENGINE_ROWS):
        for name in row.names:
            rows.setdefault(name, []).append(row)
    proofs = {row.zero_beside for row in sglang_metrics.ROWS}  # their mere presence tells, whatever their labels
    made = [
        Query(SGLANG, name, tuple(row.signal for row in of), "" if name in proofs and not any(row.but for row in of) else _narrowed(of))
        for name, of in rows.items()
    ]
    return (*made, Query(SGLANG, sglang_experts.BUCKET, ("expert_load",)))


def _narrowed(rows: list[sglang_metrics.Row]) -> str:
    """The matcher for what any of these rows takes; "" for everything."""
    if not rows[0].label or any(row.label != rows[0].label for row in rows):
        return ""
    only = {value for row in rows for value in row.only}
    if all(row.only for row in rows):
        return f'{rows[0].label}=~"{"|".join(sorted(only))}"'
    left_out = set.intersection(*(set(row.but) for row in rows if not row.only)) - only
    return f'{rows[0].label}!~"{"|".join(sorted(left_out))}"' if left_out else ""


def _vllm() -> tuple[Query, ...]:
    of: dict[str, tuple[str, ...]] = {}
    for row in vllm_metrics.ROWS:
        for name, _ in row.names:
            of[name] = (*of.get(name, ()), row.signal)
    roles = (
        Query(VLLM, name, ()) for name in sorted(vllm_metrics.TRANSFERS)
    )  # that they are there says which half of a split engine it is
    return (*(Query(VLLM, name, signals) for name, signals in of.items()), Query(VLLM, vllm_metrics.CONFIG, ("resident_tokens",)), *roles)


def _own() -> tuple[Query, ...]:
    signals = ((family.name, (name,)) for name, family in exported.of_signals().items())
    facts = ((name, ()) for name in (exported.ENGINE, exported.EXPECTED_RANKS, exported.KV_BYTES))
    return tuple(Query(OWN, name.removeprefix("slowrank_"), of) for name, of in (*signals, *facts))


QUERIES: tuple[Query, ...] = (*_sglang(), *_vllm(), *_own())
"""All of them; only those are sent whose metric is there."""
