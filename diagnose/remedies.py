"""What to do about a finding, where another engine than SGLang needs other words than the rule's own. Data; pure."""

from __future__ import annotations

_VLLM: dict[str, str] = {
    "request_count_skew": "vLLM's balancer counts requests since 0.32 and weighs the KV cache of ranks that queue; look for clients"
    " that pin a rank (X-data-parallel-rank), and update below that version.",
    "context_length_skew": "vLLM's balancer counts requests, not tokens: route long prompts yourself (X-data-parallel-rank), or give them"
    " servers of their own.",
    "kv_pressure": "Admit less on each rank (--max-num-seqs), give the cache more memory (--gpu-memory-utilization), or route long requests"
    " to the emptier ranks (X-data-parallel-rank).",
    "slow_rank": "Read that rank's card and host first: clocks, throttle reasons, ECC and link errors, run-queue delay of its EngineCore"
    " and workers. Then restart that rank and measure again before replacing anything.",
    "stuck_rank": "Take stacks of all engine cores and workers now (py-spy dump --pid PID), then restart the engine: /health goes on"
    " answering 200. From 0.33, --watchdog-config writes such stacks by itself.",
    "whole_group_slow": "Read the cards' own evidence on every node (clocks, throttle reasons, temperatures, link errors), the worker"
    " processes' run-queue delay, and what was deployed at the onset.",
}


def of(rule: str, kind: str, own: str) -> str:
    """The remedy of a rule on an engine of this kind; `own` is what the rule says itself."""
    return _VLLM.get(rule, own) if kind == "vllm" else own
