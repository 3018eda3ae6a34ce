"""Prompt tokens that ranks compute, also those of prompts that are still under way. Pure.

vLLM counts a prompt when its first output comes, all at once: while a long one is computed the counter stands. Its KV grows meanwhile.
"""

from __future__ import annotations

import numpy as np

from collector import signals
from collector.model import FloatArray, Window
from diagnose import lockstep, sums


def computed(window: Window) -> FloatArray:
    """(R,) prompt tokens per second: those counted, or, if that is more, what KV grew by beyond output in the intervals in which no prompt
    was counted, cached or not. There a prompt is under way: what is admitted from the cache is counted soon after. A lower bound, as
    requests that end give KV back. NaN where neither was observed."""
    counts, cached = window.get(signals.PREFILL_TOKENS), window.get(signals.CACHED_TOKENS)
    held, lengths = window.get(signals.RESIDENT_TOKENS), np.diff(window.edges)
    counted = lockstep.nanmean(counts)
    rises = np.diff(held, axis=1, prepend=np.nan) - (window.get(signals.ATTENTION_TOKENS) - counts) * lengths
    quiet = (sums.zeroed(counts) <= 0) & (sums.zeroed(cached) <= 0) & np.isfinite(rises)
    grown = np.where(quiet, np.maximum(sums.zeroed(rises), 0.0), 0.0).sum(axis=1) / lengths.sum()
    return np.asarray(np.where(np.isfinite(held).any(axis=1), np.fmax(counted, grown), counted))
