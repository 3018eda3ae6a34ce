"""SGLang's GET /v1/loads into a Reading: what every rank's scheduler last published about its load. Needs no flag. Pure.

Facts from SGLang's own code, 0.5.9 to 0.5.23 (docs/signals.md). The shape changed between versions, so fields are read where present:
before 0.5.14 the body also had `dp_rank_count` and `aggregate`, some versions give no per-rank `timestamp`, and the cumulative prefill
and decode sums came with 0.5.18.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

import msgspec

from collector import signals
from collector.engines.limits import MAX_RANKS, few, name_ranks
from collector.errors import SourceError
from collector.jsonpage import decode
from collector.model import Facts, Page, Problem, Reading

FIELDS: tuple[tuple[str, str, float], ...] = (
    (signals.RUNNING, "num_running_reqs", 1.0),
    (signals.WAITING, "num_waiting_reqs", 1.0),
    (signals.RESIDENT_TOKENS, "num_used_tokens", 1.0),
    (signals.WAITING_TOKENS, "num_waiting_uncached_tokens", 1.0),
    (signals.KV_USAGE, "token_usage", 1.0),
    (signals.PREFILL_TOKENS, "total_prefill_uncached_tokens", 1.0),
    (signals.PREFILL_BUSY, "total_prefill_busy_us", 1e-6),
)
"""Signal, field of one rank's entry, factor into the signal's unit."""

SECTION_FIELDS: tuple[tuple[str, str, str, float], ...] = (
    (signals.BOOTSTRAP_QUEUE, "disaggregation", "prefill_bootstrap_queue_reqs", 1.0),
    (signals.INFLIGHT_QUEUE, "disaggregation", "prefill_inflight_queue_reqs", 1.0),
    (signals.PREALLOC_QUEUE, "disaggregation", "decode_prealloc_queue_reqs", 1.0),
    (signals.TRANSFER_QUEUE, "disaggregation", "decode_transfer_queue_reqs", 1.0),
    (signals.TRANSFER_SPEED, "disaggregation", "kv_transfer_speed_gb_s", 1e9),
    (signals.TRANSFER_LATENCY, "disaggregation", "kv_transfer_latency_ms", 1e-3),
    (signals.ACCEPT_LENGTH, "speculative", "accept_length", 1.0),
)
"""Signal, section of one rank's entry, field in it, factor into the signal's unit. The accept length there is of the scheduler's whole
life; `sglang.adjust` puts the window's own in its place where the decode moments give it."""

ROWS = "_decode_rows"
"""Helper counter, 1: requests summed over decode steps (decode_moments sum b)."""

TOKENS = "_decode_tokens"
"""Helper counter, tokens: tokens that those steps made (decode_moments sum g): more than one a request with speculative decoding."""

MOMENTS: tuple[tuple[str, int, float], ...] = (
    (signals.DECODE_STEPS, 0, 1.0),
    (signals.DECODE_TIME, 2, 1e-6),
    (ROWS, 1, 1.0),
    (TOKENS, 5, 1.0),
)
"""Signal, index in `decode_moments` [n, sum b, sum t, sum b^2, sum b t, sum g], factor; t is in microseconds."""

ROLES = {"null": "unified", "prefill": "prefill", "decode": "decode"}
"""`disaggregation.mode` (the string "null" when off) to our word."""

WALL_CLOCK = 1e9
"""Unix seconds below which a number is not a wall clock but a counter or a process clock."""

AHEAD_S = 2.0
"""How far a rank's clock may be ahead of the server's before its age is called unknown; below it the age is 0."""


class _Memory(msgspec.Struct):
    kv_cache_gb: float | None = None
    token_capacity: float | None = None


class _Disaggregation(msgspec.Struct):
    mode: str | None = None
    prefill_bootstrap_queue_reqs: float | None = None
    prefill_inflight_queue_reqs: float | None = None
    decode_prealloc_queue_reqs: float | None = None
    decode_transfer_queue_reqs: float | None = None
    kv_transfer_speed_gb_s: float | None = None
    kv_transfer_latency_ms: float | None = None


class _Speculative(msgspec.Struct):
    accept_length: float | None = None


class _Rank(msgspec.Struct):
    dp_rank: int | None = None
    timestamp: float | str | None = None
    max_total_num_tokens: float | None = None
    num_running_reqs: float | None = None
    num_waiting_reqs: float | None = None
    num_waiting_uncached_tokens: float | None = None
    num_used_tokens: float | None = None
    token_usage: float | None = None
    total_prefill_uncached_tokens: float | None = None
    total_prefill_busy_us: float | None = None
    decode_moments: list[float | None] | None = None
    memory: _Memory | None = None
    disaggregation: _Disaggregation | None = None
    speculative: _Speculative | None = None


class _Loads(msgspec.Struct):
    loads: list[_Rank] | None = None
    timestamp: float | str | None = None
    version: str | None = None
    accelerator: str | None = None


def read(page: Page, url: str) -> Reading:
    """One reply of /v1/loads in canonical signals, per DP rank.

    `times[rank]` is the arrival less the snapshot's age, both ends of which are on the engine's clock; the arrival where no age is known.
    A rank that has never published (SGLang creates its slot zeroed) is absent and named in a Problem: it is not idle.
    Raises SourceError for a body that is not this endpoint's.
    """
    if page.body.lstrip()[:1] == b"[":
        raise SourceError(f"{url}: a bare list, which is the shape of the old /get_load; ask /v1/loads, there since SGLang 0.5.9")
    reply = decode(page.body, _Loads, url)
    if reply.loads is None:
        raise SourceError(f"{url}: JSON without `loads`; is this an SGLang server >= 0.5.9?")
    problems: list[Problem] = []
    ranks = _by_rank(reply.loads, url, problems)
    unready = [rank for rank, entry in ranks.items() if _never_published(entry)]
    if not reply.loads:
        then = "this is not an idle cluster: wait until the engine has started; if it stays so, its snapshots cannot be read (/dev/shm)"
        problems.append(Problem(url, "the list of ranks is empty", then))
    if unready:
        what = f"{name_ranks(unready)} never published a load: starting, not idle"
        problems.append(Problem(url, what, "wait until the engine is ready; then look at that scheduler's log"))
    served = _moment(reply.timestamp)
    times: dict[int, float] = {}
    values: dict[str, dict[int, float]] = {}
    for rank, entry in ranks.items():
        if rank in unready:
            continue
        age = _age(served, _moment(entry.timestamp), rank, url, problems)
        times[rank] = page.arrived - (age or 0.0)
        found = _values(entry, rank, url, problems)
        if age is not None:
            found[signals.SNAPSHOT_AGE] = age
        for name, value in found.items():
            values.setdefault(name, {})[rank] = value
    return Reading(page.engine, page.node, page.source, page.arrived, times, values, _facts(reply, ranks), few(problems))


def _by_rank(loads: list[_Rank], url: str, problems: list[Problem]) -> dict[int, _Rank]:
    """Entries by DP rank; those whose rank cannot be used are named in a Problem."""
    ranks: dict[int, _Rank] = {}
    for entry in loads:
        rank = entry.dp_rank
        if rank is None:
            problems.append(Problem(url, "an entry without dp_rank was skipped", "ask the engine itself; is a proxy between?"))
        elif not 0 <= rank < MAX_RANKS:
            shown = rank if abs(rank) < 10**12 else "a number of more than 12 digits"
            problems.append(Problem(url, f"dp_rank {shown} is not a rank (0 to {MAX_RANKS - 1}); its entry was skipped"))
        elif rank in ranks:
            what = f"dp_rank {rank} is there twice; the first entry was taken"
            problems.append(Problem(url, what, "ask the engine itself, not a gateway that joins several"))
        else:
            ranks[rank] = entry
    return ranks


def _never_published(entry: _Rank) -> bool:
    return entry.max_total_num_tokens == 0 and not entry.timestamp


def _values(entry: _Rank, rank: int, url: str, problems: list[Problem]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, section, field, factor in (*((name, "", field, factor) for name, field, factor in FIELDS), *SECTION_FIELDS):
        raw: float | None = getattr(getattr(entry, section) if section else entry, field, None)
        if raw is None or (section == "disaggregation" and _whole(entry)):
            continue
        if raw < 0:
            problems.append(Problem(url, f"rank {rank} says {field} {raw:g}; a negative amount is no reading"))
            continue
        found[name] = raw * factor
    moments = entry.decode_moments
    for name, index, factor in MOMENTS if moments is not None else ():
        part = moments[index] if moments is not None and len(moments) > index else None
        if part is None or part < 0:
            problems.append(Problem(url, f"rank {rank}: decode_moments lacks a usable element {index}; what is made of it is unknown"))
            break
        found[name] = part * factor
    return found


def _whole(entry: _Rank) -> bool:
    """Whether the rank's engine is not split: then its hand-over queues are 0 for ever, and no reading."""
    return entry.disaggregation is not None and ROLES.get(entry.disaggregation.mode or "") == "unified"


def _age(served: float | None, published: float | None, rank: int, url: str, problems: list[Problem]) -> float | None:
    """Seconds between a snapshot and the reply that carried it; None when either clock is missing or cannot be meant."""
    if served is None or published is None:
        return None
    age = served - published
    if age >= 0:
        return age
    if age >= -AHEAD_S:
        return 0.0
    what = f"the clock of rank {rank} is {-age:.0f} s ahead of the server's; the age of its load is unknown"
    problems.append(Problem(url, what, "set the clocks of all nodes by NTP"))
    return None


def _moment(value: float | str | None) -> float | None:
    """Unix seconds of a number or an ISO-8601 string (UTC when it names no zone); None for what is no wall clock."""
    if isinstance(value, str):
        try:
            parsed = datetime.fromisoformat(value)
            value = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return value if value is not None and isfinite(value) and value >= WALL_CLOCK else None


def _facts(reply: _Loads, ranks: dict[int, _Rank]) -> Facts:
    pools = [(m.kv_cache_gb or 0.0, m.token_capacity or 0.0) for entry in ranks.values() if (m := entry.memory) is not None]
    # 0 is what SGLang prints where it cannot tell (seen for some models' pools), not an empty pool
    per_token = [gigabytes * 1e9 / tokens for gigabytes, tokens in pools if gigabytes > 0 and tokens > 0]
    modes = {ROLES.get(entry.disaggregation.mode or "") for entry in ranks.values() if entry.disaggregation is not None}
    return Facts(
        version=reply.version or None,
        accelerator=reply.accelerator or None,
        role=modes.pop() if len(modes) == 1 else None,
        kv_bytes_per_token=per_token[0] if per_token else None,
    )
