"""A diary as arrays: what every loop adds to every counter.

What is counted is ranks x loops, as numpy is quick along a long axis, and its sums are exact in whatever order. Seconds are
loops x columns: they are added up loop by loop, so that the same simulation gives the same digits whatever is done at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workload.virtual_time.diary import Diary
from workload.virtual_time.hosts import OTHER, TAKE_IN, Array

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Whole = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Launched:
    """What was launched, the last loop of the block before in front; `end`, `level`, `graph` and `prefill` (some rank extends) per loop.

    `tokens` are those of the metadata, one for each row of a decode; `gains` what a decode makes.
    """

    tokens: Whole
    gains: Whole
    pairs: Whole
    extend: Mask
    at: Array  # loops x ranks, as `sync`
    sync: Array
    end: Array
    level: Array
    graph: Mask
    prefill: Mask

    @classmethod
    def nothing(cls, ranks: int) -> Launched:
        """One loop that launched nothing, as before the first."""
        none, no, nan = np.zeros((ranks, 1), dtype=int), np.zeros((ranks, 1), dtype=bool), np.full(1, np.nan)
        return cls(none, none, none, no, np.zeros((1, ranks)), np.zeros((1, ranks)), nan, nan, no[0], no[0])

    @classmethod
    def of(cls, diary: Diary, before: Launched) -> Launched:
        """`before`: the block before."""
        count, hosts = len(diary.base), diary.hosts
        extend = np.zeros((hosts.ranks, count + 1), dtype=bool)
        extend[:, 0] = before.extend[:, -1]
        for row, rank in diary.extending:
            extend[rank, row + 1] = True
        at, sync = np.empty((2, count + 1, hosts.ranks))
        at[0], sync[0] = before.at[-1], before.sync[-1]
        np.add(hosts.launched[:count], np.array(diary.base)[:, None], out=at[1:])
        np.subtract(hosts.told[:count], hosts.asked[:count], out=sync[1:])
        tokens = _table(before.tokens, diary.tokens)
        return cls(
            tokens=tokens,
            gains=_table(before.gains, diary.gained) if diary.gained else tokens,
            pairs=_table(before.pairs, diary.pairs),
            extend=extend,
            at=at,
            sync=sync,
            end=np.array([before.end[-1], *diary.end]),
            level=np.array([before.level[-1], *diary.level]),
            graph=np.array([before.graph[-1], *diary.graph]),
            prefill=np.any(extend, axis=0),
        )

    @property
    def decode(self) -> Mask:
        return (self.tokens > 0) & ~self.extend

    @property
    def stepped(self) -> Mask:
        """Whether the cards had anything to do, per loop."""
        return ~np.isnan(self.end)

    @property
    def results(self) -> Launched:
        """What each loop of the block gets the results of: what the loop before has launched."""
        whole = (getattr(self, name)[:, :-1] for name in ("tokens", "gains", "pairs", "extend"))
        return Launched(*whole, *(getattr(self, name)[:-1] for name in ("at", "sync", "end", "level", "graph", "prefill")))


def _table(before: Whole, numbers: list[int]) -> Whole:
    """The numbers, loop by loop, as ranks x loops behind the last loop of `before`. Packing them takes a fifth of `np.array`'s time."""
    packed = before[:, -1].tobytes() + struct.pack(f"{len(numbers)}q", *numbers)
    return np.ascontiguousarray(np.frombuffer(packed, np.int64).reshape(-1, len(before)).T)


class Stretches:
    """The loops of a block from one scrape to the next: those before `edges[1]`, those from there on before `edges[2]`, and so on."""

    def __init__(self, edges: Sequence[int]) -> None:
        self.number = np.repeat(np.arange(len(edges) - 1), np.diff(edges))  # of the stretch, per loop
        self._is: Array = (np.arange(len(edges) - 1)[:, None] == self.number).astype(float)

    def __len__(self) -> int:
        return len(self._is)

    def sums(self, counts: Whole | Mask, of: Mask | None = None) -> Array:
        """Sums over the loops of each stretch, those `of` the mask alone if there is one: stretches x ranks."""
        found: Array = (self._is if of is None else self._is * of) @ counts.T
        return found

    def histogram(self, places: Whole, of: Mask, width: int) -> Array:
        """How many of `places`, loops x columns, are 0, at most 1, and so on up to `width` - 1, in the loops `of` the mask.

        Stretches x columns x width.
        """
        columns = places.shape[1]
        apart = (self.number[:, None] * columns + np.arange(columns)) * width + places
        counted = np.bincount(apart[of].ravel(), minlength=len(self) * columns * width)
        found: Array = counted.reshape(len(self), columns, width).cumsum(axis=2)
        return found


def counted(was: Launched, diary: Diary, stretches: Stretches) -> dict[str, Array]:
    """What results count, by column, stretches x ranks, or x 1 where all ranks count the same. `was`: `Launched.results`."""
    tokens, pairs, extend, stepped, sums = was.tokens, was.pairs, was.extend, was.stepped, stretches.sums
    active = tokens > 0
    steps, on, extends, replays = sums(stepped[None, :]), sums(active), sums(extend), sums(active, of=was.graph)
    token_sums, pair_sums = sums(tokens), sums(pairs)
    computed, cached = np.zeros((2, *tokens.shape))
    for done in diary.extends:
        computed[done.rank, done.row] = done.computed
        cached[done.rank, done.row] = done.cached
    found = {
        'dp_attention_tokens_total{kind="scheduled"}': token_sums,
        'dp_attention_tokens_total{kind="imbalance"}': sums(tokens.max(axis=0, keepdims=True)) - token_sums,
        'dp_attention_pairs_total{kind="scheduled"}': pair_sums,
        'dp_attention_pairs_total{kind="imbalance"}': sums(pairs.max(axis=0, keepdims=True)) - pair_sums,
        'dp_attention_steps_total{rank_state="active"}': on,
        'dp_attention_steps_total{rank_state="idle"}': steps - on,
        "dp_attention_sync_wait_seconds_count": steps,
        "dp_attention_token_imbalance_ratio_count": steps,
        'eplb_balancedness_count{forward_mode="decode"}': sums((stepped & ~was.prefill)[None, :]),
        'eplb_balancedness_count{forward_mode="extend"}': sums((stepped & was.prefill)[None, :]),
        'cuda_graph_passes_total{mode="decode_cuda_graph"}': replays,  # a step in which somebody extends has none
        'cuda_graph_passes_total{mode="decode_none"}': on - extends - replays,
        'cuda_graph_passes_total{mode="prefill_none"}': extends,
        'realtime_tokens_total{mode="prefill_compute"}': sums(computed),
        'realtime_tokens_total{mode="prefill_cache"}': sums(cached),
        'realtime_tokens_total{mode="decode"}': sums(generated(was, diary)),
    }
    if diary.retracted:  # which is rare
        retracted = np.zeros((len(_RETRACTED), len(stretches), len(tokens)))
        for row, rank, *counts in diary.retracted:
            retracted[:, stretches.number[row], rank] += counts
        found |= dict(zip(_RETRACTED, retracted, strict=True))
    return found


_RETRACTED = tuple(f"num_retracted_{what}_total" for what in ("requests", "input_tokens", "output_tokens"))


def generated(was: Launched, diary: Diary) -> Whole:
    """Tokens that decodes have made for requests that are still there."""
    made: Whole = np.where(was.extend, 0, was.gains)
    for row, rank, lost in diary.lost:
        made[rank, row] -= lost
    return made


def imbalance(tokens: Whole) -> Array:
    """Max over mean of the ranks' tokens, per loop; not a number where nobody had any."""
    with np.errstate(invalid="ignore"):
        ratio: Array = tokens.max(axis=0) * len(tokens) / tokens.sum(axis=0)
    return ratio


def observed(was: Launched, diary: Diary, ratio: Array, forward: str) -> dict[str, Array]:
    """What is measured of results, by column: loops x ranks, or x 1. `ratio`: the `imbalance`; `forward`: what a decode's is called."""
    stepped, active = was.stepped[:, None], (was.tokens > 0).T
    extend = was.extend.T
    before = np.concatenate(([-np.inf], np.where(np.isnan(was.end), -np.inf, was.end)[:-1]))
    span = np.where(stepped, was.end[:, None] - np.maximum(before[:, None], was.at), 0.0)
    found = {
        "dp_attention_sync_wait_seconds_sum": was.sync * stepped,
        f'forward_execution_seconds_total{{category="{forward}"}}': span * (active & ~extend),
        'forward_execution_seconds_total{category="extend"}': span * extend,
        'forward_execution_seconds_total{category="idle"}': span * (stepped & ~active),
        "dp_attention_token_imbalance_ratio_sum": np.where(stepped, ratio[:, None], 0.0),
        'eplb_balancedness_sum{forward_mode="decode"}': np.where(stepped[:, 0] & ~was.prefill, was.level, 0.0)[:, None],
        'eplb_balancedness_sum{forward_mode="extend"}': np.where(stepped[:, 0] & was.prefill, was.level, 0.0)[:, None],
    }
    if diary.idle:
        idle = np.zeros(was.at.shape)
        for row, seconds in diary.idle:
            idle[row] = seconds
        for row, rank in diary.working:
            idle[row, rank] = 0.0
        found["scheduler_idle_seconds_total"] = idle
    return found


def stages(diary: Diary, launched: Array, ends: Array, next_begin: Array) -> dict[str, Array]:
    """Seconds per scheduler stage and of the process' CPU, by column; loops x ranks, or x 1 where all ranks take the same.

    `launched`: when, loops x ranks. `ends` of each loop, when the first rank begins the next one; `next_begin`: how much later each rank
    does so after the last.
    """
    count, hosts = len(diary.base), diary.hosts
    begin = np.concatenate((hosts.begin[1:count], next_begin[None, :]))
    asleep = np.zeros((count, 1))
    for row, seconds in diary.idle:
        asleep[row] = seconds
    took = {
        "recv_requests": (hosts.heard - hosts.begin)[:count],
        "process_input_requests": np.full((count, 1), TAKE_IN),
        "get_next_batch_to_run": (hosts.told - hosts.heard)[:count] - TAKE_IN,
        "run_batch": hosts.launch_seconds[:count],
        "process_batch_result": ends[:, None] + begin - launched - asleep - OTHER,
        "other": np.full((count, 1), OTHER),
        "idle": asleep,
    }
    named = {f'scheduler_stage_seconds_total{{category="{stage}",forward_overlap="none"}}': seconds for stage, seconds in took.items()}
    return named | {"scheduler_process_cpu_seconds_total": hosts.cpu[:count]}
