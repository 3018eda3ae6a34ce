"""vLLM's statistics line of each engine (every 10 s) and its line of each iteration. Pure.

`INFO 03-11 06:16:52 [loggers.py:257] Engine 000: Avg prompt throughput: 16.5 tokens/s, Avg generation throughput: 1157.2 tokens/s, Running:
51 reqs, Waiting: 117 reqs, GPU KV cache usage: 100.0%, ...`; with --enable-logging-iteration-details also `Engine 001: Iteration(100): 0
context requests, 0 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 39.85 ms, ...`. There is no year.

The statistics line gives no step time: requests that are still in prefill run too, so that throughput over requests is not one. An engine
without throughput in two intervals is left out of the log, even one that hangs. Several API servers write neither line.
"""

from __future__ import annotations

import re

from collector import signals
from collector.engines.limits import rank_of
from collector.engines.vllm_metrics import GENERATED
from collector.logs.line import Line, Stamp, number
from collector.model import Source

MARKS = ("Avg generation throughput:", ": Iteration(")
"""What a line holds that should be one of these."""

_HEAD = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d{1,9})? \[[^\]]{1,80}\] (?:Engine (\d{1,4}): )?(.*)", re.DOTALL)
_STATS = re.compile(
    r"Avg prompt throughput: [\d.]{1,20} tokens/s, Avg generation throughput: ([\d.]{1,20}) tokens/s, "
    r"Running: (\d{1,9}) reqs(?:, (?:Waiting|Pending): (\d{1,9}) reqs)?"
)
_ITERATION = re.compile(
    r"Iteration\(\d{1,20}\): (\d{1,9}) context requests, (\d{1,9}) context tokens, (\d{1,9}) generation requests, "
    r"(\d{1,9}) generation tokens, iteration elapsed time: ([\d.]{1,20}) ms"
)
_USAGE = re.compile(r"KV cache usage: ([\d.]{1,20})%")


def parse(text: str) -> Line | None:
    """The report that a line holds; None when it holds none, or is cut before its counts."""
    head = _HEAD.search(text)
    if head is None:
        return None
    stamp, rest = Stamp(None, *(int(head[k]) for k in range(1, 6))), head[7]
    rank = rank_of(head[6]) if head[6] is not None else None
    usage = _USAGE.search(rest)
    percent = number(usage[1]) if usage else None
    kv = {} if percent is None else {signals.KV_USAGE: percent / 100}
    if (found := _ITERATION.search(rest)) is not None:
        return _iteration(found, stamp, rank, kv)
    stats = _STATS.search(rest)
    rate = number(stats[1]) if stats else None
    if stats is None or rate is None:
        return None
    waiting = {} if stats[3] is None else {signals.WAITING: float(stats[3])}
    return Line(Source.VLLM_LOG, stamp, rank, 0, {signals.RUNNING: float(stats[2])} | waiting | kv, rate=rate)


def _iteration(found: re.Match[str], stamp: Stamp, rank: int | None, kv: dict[str, float]) -> Line | None:
    elapsed = number(found[5])
    if elapsed is None:
        return None
    prompts, prompt_tokens, decodes, generated = (float(found[k]) for k in range(1, 5))
    adds = {signals.PREFILL_TOKENS: prompt_tokens, GENERATED: generated}
    if decodes:
        adds |= {signals.DECODE_TIME: elapsed / 1e3, signals.DECODE_STEPS: 1.0}
    return Line(Source.VLLM_LOG, stamp, rank, 0, {signals.RUNNING: prompts + decodes} | kv, adds)
