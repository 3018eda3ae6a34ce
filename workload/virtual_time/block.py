"""A diary as arrays: what every loop adds to every counter."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from workload.virtual_time.diary import Diary
from workload.virtual_time.hosts import OTHER, TAKE_IN, Array

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Launched:
    """What was launched, loops x ranks; `end`, `level`, `graph` and `prefill` (some rank extends) per loop.

    `tokens` are those of the metadata, one for each row of a decode; `gains` what a decode makes.
    """

    tokens: Array
    gains: Array
    pairs: Array
    extend: Mask
    at: Array
    sync: Array
    end: Array
    level: Array
    graph: Mask
    prefill: Mask

    @classmethod
    def nothing(cls, ranks: int) -> Launched:
        """One loop that launched nothing, as before the first."""
        zero, no, nan = np.zeros((1, ranks)), np.zeros((1, ranks), dtype=bool), np.full(1, np.nan)
        return cls(zero, zero, zero, no, zero, zero, nan, nan, no[:, 0], no[:, 0])

    @classmethod
    def of(cls, diary: Diary) -> Launched:
        count, hosts = len(diary.base), diary.hosts
        extend = np.zeros((count, hosts.ranks), dtype=bool)
        for row, rank in diary.extending:
            extend[row, rank] = True
        tokens = _table(diary.tokens, hosts.ranks)
        return cls(
            tokens=tokens,
            gains=_table(diary.gained, hosts.ranks) if diary.gained else tokens,
            pairs=_table(diary.pairs, hosts.ranks),
            extend=extend,
            at=hosts.launched[:count] + np.array(diary.base)[:, None],
            sync=(hosts.told - hosts.asked)[:count],
            end=np.array(diary.end),
            level=np.array(diary.level),
            graph=np.array(diary.graph),
            prefill=np.any(extend, axis=1),
        )

    @property
    def decode(self) -> Mask:
        return (self.tokens > 0) & ~self.extend

    def after(self, before: Launched) -> Launched:
        """With the last row of the block before in front."""
        return Launched(*(np.concatenate((getattr(before, name)[-1:], getattr(self, name))) for name in self.__slots__))


def _table(rows: list[list[int]], width: int) -> Array:
    """The rows as an array; number by number, which takes two thirds of the time of `np.array`."""
    return np.fromiter(itertools.chain.from_iterable(rows), float, len(rows) * width).reshape(-1, width)


def booked(both: Launched, diary: Diary, forward: str) -> dict[str, Array]:
    """What each loop books as the result of the loop before, by column and loop x rank.

    `both`: with the row before in front; `forward`: what a decode's forward is called.
    """
    was = Launched(*(getattr(both, name)[:-1] for name in both.__slots__))
    stepped = ~np.isnan(was.end)[:, None]
    tokens, pairs, decode = was.tokens, was.pairs, was.decode
    idle = stepped & (tokens == 0)
    before = np.concatenate(([-np.inf], np.where(np.isnan(was.end), -np.inf, was.end)[:-1]))
    span = np.where(stepped, was.end[:, None] - np.maximum(before[:, None], was.at), 0.0)
    computed, cached = np.zeros_like(tokens), np.zeros_like(tokens)
    generated = was.gains * decode
    for extend in diary.extends:
        computed[extend.row, extend.rank] = extend.computed
        cached[extend.row, extend.rank] = extend.cached
    for row, rank, lost in diary.lost:
        generated[row, rank] -= lost
    graph = was.graph[:, None]
    counted = {
        'dp_attention_tokens_total{kind="scheduled"}': tokens,
        'dp_attention_tokens_total{kind="imbalance"}': tokens.max(axis=1, keepdims=True) - tokens,
        'dp_attention_pairs_total{kind="scheduled"}': pairs,
        'dp_attention_pairs_total{kind="imbalance"}': pairs.max(axis=1, keepdims=True) - pairs,
        'dp_attention_steps_total{rank_state="active"}': tokens > 0,
        'dp_attention_steps_total{rank_state="idle"}': idle,
        "dp_attention_sync_wait_seconds_sum": was.sync * stepped,
        f'forward_execution_seconds_total{{category="{forward}"}}': span * decode,
        'forward_execution_seconds_total{category="extend"}': span * was.extend,
        'forward_execution_seconds_total{category="idle"}': span * idle,
        'cuda_graph_passes_total{mode="decode_cuda_graph"}': decode & graph,
        'cuda_graph_passes_total{mode="decode_none"}': decode & ~graph,
        'cuda_graph_passes_total{mode="prefill_none"}': was.extend,
        'realtime_tokens_total{mode="prefill_compute"}': computed,
        'realtime_tokens_total{mode="prefill_cache"}': cached,
        'realtime_tokens_total{mode="decode"}': generated,
    }
    if diary.retracted:  # which is rare
        retracted = np.zeros((len(_RETRACTED), *tokens.shape))
        for row, rank, *counts in diary.retracted:
            retracted[:, row, rank] += counts
        counted |= dict(zip(_RETRACTED, retracted, strict=True))
    return counted


_RETRACTED = tuple(f"num_retracted_{what}_total" for what in ("requests", "input_tokens", "output_tokens"))


def imbalance(tokens: Array) -> Array:
    """Max over mean of the ranks' tokens, of each step; not a number where nobody had any."""
    with np.errstate(invalid="ignore"):
        ratio: Array = tokens.max(axis=1) * tokens.shape[1] / tokens.sum(axis=1)
    return ratio


def observed(both: Launched) -> dict[str, Array]:
    """Counts and sums of the histograms and summaries that each loop observes, by column; loop x rank where every rank does."""
    tokens, level, prefill = both.tokens[:-1], both.level[:-1], both.prefill[:-1]
    stepped = ~np.isnan(both.end[:-1])
    ratio = np.where(stepped, imbalance(tokens), 0.0)
    first = np.arange(tokens.shape[1]) == 0  # the rank that tells of the imbalance
    found = {
        "dp_attention_sync_wait_seconds_count": np.repeat(stepped[:, None], tokens.shape[1], axis=1),
        "dp_attention_token_imbalance_ratio_count": stepped[:, None] & first,
        "dp_attention_token_imbalance_ratio_sum": ratio[:, None] * first,
    }
    for mode, which in (("decode", stepped & ~prefill), ("extend", stepped & prefill)):
        found[f'eplb_balancedness_count{{forward_mode="{mode}"}}'] = which[:, None]
        found[f'eplb_balancedness_sum{{forward_mode="{mode}"}}'] = np.where(which, level, 0.0)[:, None]
    return found


def stages(diary: Diary, ends: Array, next_begin: Array) -> tuple[dict[str, Array], Array, Array]:
    """Seconds per scheduler stage, of the process' CPU, and without anything to do; loop x rank.

    `ends` of each loop, when the first rank begins the next one; `next_begin`: how much later each rank does so after the last.
    """
    count, hosts = len(diary.base), diary.hosts
    begin = np.concatenate((hosts.begin[1:count], next_begin[None, :]))
    launched = np.array(diary.base)[:, None] + hosts.launched[:count]
    asleep, idle = np.zeros((count, 1)), np.zeros((count, hosts.ranks))
    for row, seconds in diary.idle:
        asleep[row], idle[row] = seconds, seconds
    for row, rank in diary.working:
        idle[row, rank] = 0.0
    return (
        {
            "recv_requests": (hosts.heard - hosts.begin)[:count],
            "process_input_requests": np.full((count, hosts.ranks), TAKE_IN),
            "get_next_batch_to_run": (hosts.told - hosts.heard)[:count] - TAKE_IN,
            "run_batch": hosts.launch_seconds[:count],
            "process_batch_result": ends[:, None] + begin - launched - asleep - OTHER,
            "other": np.full((count, hosts.ranks), OTHER),
            "idle": np.broadcast_to(asleep, (count, hosts.ranks)),
        },
        hosts.cpu[:count],
        idle,
    )
