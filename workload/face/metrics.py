"""What the engine's processes count about themselves, in the families of SGLang 0.5.23.

One `SchedulerMetrics` per rank process, one `ExpertMetrics` in rank 0's process, one `TokenizerMetrics` in the frontend. They
write prometheus_client's multiprocess files; the frontend's `/metrics` reads the files of all processes. PROMETHEUS_MULTIPROC_DIR
must be in the environment before a process first imports prometheus_client.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from workload.face import specs
from workload.face.exposed import Exposed

FLUSH_S = 1.0  # SGLang 0.5.23 adds up stages and CPU time itself and writes them at most this often

Overlap = Literal["full", "partial", "none"]


@dataclass(frozen=True, slots=True)
class LoggedStats:
    """What a rank logs, by gauge name. A field left out shows what SGLang shows without the feature behind it."""

    num_running_reqs: int = 0  # the decode batch; on a prefill server the batch in the forward
    num_queue_reqs: int = 0  # the waiting queue alone
    gen_throughput: float = 0.0  # tokens/s over the last decode log window
    cache_hit_rate: float = 0.0  # of the last prefill report, 0 to 1
    decode_sum_seq_lens: int = 0  # tokens
    token_usage: float = 0.0  # 0 to 1, two decimals
    full_token_usage: float = 0.0  # 0 to 1, two decimals
    num_used_tokens: int = 0
    kv_available_tokens: int = 0  # free
    kv_evictable_tokens: int = 0  # cached prefixes that nobody holds
    kv_used_tokens: int = 0
    spec_accept_length: float = 0.0  # tokens per verify step, last window
    spec_accept_rate: float = 0.0
    spec_num_steps: int = 0
    spec_num_draft_tokens: int = 0
    num_retracted_reqs: int = 0  # last window only
    num_prefill_bootstrap_queue_reqs: int = 0
    num_prefill_inflight_queue_reqs: int = 0
    num_decode_prealloc_queue_reqs: int = 0
    num_decode_transfer_queue_reqs: int = 0
    prealloc_full_token_usage: float = 0.0  # share of the pool held by requests that do not run yet
    utilization: float = 0.0  # dead: 0, or -1 on a prefill server
    fwd_occupancy: float = math.nan  # percent of wall time in forwards, at most 100; NaN when idle
    new_token_ratio: float = 0.0


class SchedulerMetrics:
    """One rank's scheduler. Rank r of N is tp_rank = dp_rank = moe_ep_rank = r, as in `--tp N --attn-dp-size N --ep N`."""

    def __init__(self, *, model_name: str, rank: int, ranks: int, engine_type: str = "unified") -> None:
        self._rank = rank
        self._ranks = ranks
        self._exposed = Exposed(specs.SCHEDULER, _scheduler_labels(model_name, engine_type, rank, ranks))
        counter, histogram = self._exposed.counter, self._exposed.histogram

        # what SGLang shows at 0 before anything happened
        for mode in specs.EFFECTIVE_TOKENS:
            counter("prefill_effective_tokens_total", mode)
        for stage in specs.STAGES:
            counter("scheduler_stage_seconds_total", stage, "none")
        self._idle = counter("scheduler_idle_seconds_total")
        self._cpu = counter("scheduler_process_cpu_seconds_total")
        self._tokens_scheduled = counter("dp_attention_tokens_total", "scheduled")
        self._tokens_imbalance = counter("dp_attention_tokens_total", "imbalance")
        self._pairs_scheduled = counter("dp_attention_pairs_total", "scheduled")
        self._pairs_imbalance = counter("dp_attention_pairs_total", "imbalance")
        self._steps_active = counter("dp_attention_steps_total", "active")
        self._steps_idle = counter("dp_attention_steps_total", "idle")
        self._ratio = histogram("dp_attention_token_imbalance_ratio")  # every rank has it, rank 0 alone observes
        self._sync_wait = histogram("dp_attention_sync_wait_seconds")

        self._logged_before = False
        self._stages: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._flushed_at: float | None = None
        self._cpu_seen = time.process_time()

    def constants(
        self, *, max_total_num_tokens: int, weight_gb: float, kv_cache_gb: float, graph_gb: float, page_size: int, context_len: int
    ) -> None:
        """Sizes that are said once at start. Tokens for the KV pool, its pages and the context, GB for memory."""
        gauge = self._exposed.gauge
        gauge("max_total_num_tokens").set(max_total_num_tokens)
        gauge("weight_memory_usage_gb").set(weight_gb)
        gauge("kv_cache_memory_usage_gb").set(kv_cache_gb)
        gauge("graph_memory_usage_gb", "decode").set(graph_gb)
        gauge("graph_memory_usage_gb", "prefill").set(0)
        gauge("page_size").set(page_size)
        gauge("num_pages").set(max_total_num_tokens // page_size)
        gauge("context_len").set(context_len)
        gauge("startup_available_gpu_memory_gb").set(0)  # the workload has no card to ask

    def step(self, *, all_tokens: Sequence[int], all_pairs: Sequence[int], sync_wait: float) -> None:
        """One lockstep step: every rank's tokens and attention pairs as exchanged, and this rank's seconds in the exchange.

        Decode counts one token per request and a pair per token of its context. A step in which no rank had a token is not
        recorded, nor is anything without peers. The rank with the most pairs need not be the one with the most tokens.
        """
        most_tokens = max(all_tokens)
        if most_tokens <= 0 or self._ranks == 1:
            return
        tokens, pairs = all_tokens[self._rank], all_pairs[self._rank]
        self._tokens_scheduled.inc(tokens)
        self._tokens_imbalance.inc(most_tokens - tokens)
        self._pairs_scheduled.inc(pairs)
        self._pairs_imbalance.inc(max(all_pairs) - pairs)
        (self._steps_active if tokens else self._steps_idle).inc()
        self._sync_wait.observe(sync_wait)
        if self._rank == 0:
            self._ratio.observe(most_tokens * len(all_tokens) / sum(all_tokens))

    def stage(self, category: str, seconds: float, overlap: Overlap = "none") -> None:
        """Wall seconds that the scheduler loop spent in one of `specs.STAGES`, written by the next due `tick`.

        `overlap` says how much of the stage ran beside a forward; SGLang knows it only where it times forwards on a CUDA device.
        """
        self._stages[category, overlap] += seconds

    def idle(self, seconds: float) -> None:
        """Wall seconds without runnable or queued work."""
        self._idle.inc(seconds)

    def tick(self, now: float) -> None:
        """Writes stages and this process's CPU seconds (all threads) when a second has passed since the last time.

        `now` is any clock that only goes forward, in seconds; the first call starts the second.
        """
        if self._flushed_at is None:
            self._flushed_at = now
        if now - self._flushed_at < FLUSH_S:
            return
        self._flushed_at = now
        for (category, overlap), seconds in self._stages.items():
            self._exposed.counter("scheduler_stage_seconds_total", category, overlap).inc(seconds)
        self._stages.clear()
        cpu = time.process_time()
        self._cpu.inc(cpu - self._cpu_seen)
        self._cpu_seen = cpu

    def forward(self, category: str, seconds: float) -> None:
        """Device seconds of one forward, first start to last end, collectives included: decode, target_verify, extend or idle."""
        self._exposed.counter("forward_execution_seconds_total", category).inc(seconds)

    def decode_pass(self, *, graph: bool) -> None:
        """One decode result, from a CUDA graph or launched eagerly."""
        self._exposed.counter("cuda_graph_passes_total", "decode_cuda_graph" if graph else "decode_none").inc()

    def prefill_pass(self, *, graph: bool) -> None:
        """One prefill result, from a CUDA graph or launched eagerly."""
        self._exposed.counter("cuda_graph_passes_total", "prefill_cuda_graph" if graph else "prefill_none").inc()

    def realtime(self, mode: Literal["prefill_compute", "prefill_cache", "decode"], tokens: int, num_prefill_ranks: int) -> None:
        """Tokens of one batch by kind, and how many ranks ran prefill in that step. No tokens, no series."""
        if tokens <= 0:
            return
        self._exposed.counter("realtime_tokens_total", mode).inc(tokens)
        self._exposed.counter("dp_cooperation_realtime_tokens_total", mode, str(num_prefill_ranks)).inc(tokens)
        effective = {"prefill_compute": "input", "prefill_cache": "device_hit"}.get(mode)  # the workload's cache is on the device
        if effective:
            self._exposed.counter("prefill_effective_tokens_total", effective).inc(tokens)

    def retracted(self, *, requests: int, input_tokens: int, output_tokens: int) -> None:
        """Requests thrown out of the decode batch because the KV pool was full, with their tokens."""
        self._exposed.counter("num_retracted_requests_total").inc(requests)
        self._exposed.counter("num_retracted_input_tokens_total").inc(input_tokens)
        self._exposed.counter("num_retracted_output_tokens_total").inc(output_tokens)

    def queue_time(self, seconds: float) -> None:
        """One request's wait before its first forward."""
        self._exposed.histogram("queue_time_seconds").observe(seconds)

    def kv_sent(self, *, size: int, seconds: float) -> None:
        """One finished KV transfer of a prefill server: `size` in bytes, `seconds` from when it could have begun."""
        if seconds > 0:
            self._exposed.histogram("kv_transfer_speed_gb_s").observe(size / 1e9 / seconds)
        self._exposed.histogram("kv_transfer_latency_ms").observe(seconds * 1e3)
        self._exposed.histogram("kv_transfer_total_mb").observe(size / 2**20)

    def kv_prepared(self, *, handshake: float, allocation: float) -> None:
        """One request that is ready for its KV transfer: seconds of the handshake, and until there was room on the decode side."""
        self._exposed.histogram("kv_transfer_bootstrap_ms").observe(handshake * 1e3)
        self._exposed.histogram("kv_transfer_alloc_ms").observe(allocation * 1e3)

    def transfers_failed(self, requests: int) -> None:
        """Requests whose KV transfer ended in an error."""
        self._exposed.counter("num_transfer_failed_reqs_total").inc(requests)

    def request_stage(self, stage: str, seconds: float) -> None:
        """Seconds that one request spent in a stage, by SGLang's names."""
        self._exposed.histogram("per_stage_req_latency_seconds", stage).observe(seconds)

    def log(self, stats: LoggedStats) -> None:
        """Sets the gauges. SGLang does so per prefill batch, every 40 decode results, and every 30 s in true idle: a rank that
        only runs idle batches for its peers keeps its last values."""
        for name in _LOGGED:
            self._exposed.gauge(name).set(getattr(stats, name))
        if not self._logged_before:  # they never change
            self._logged_before = True
            for family in specs.ALWAYS_ZERO:
                for extra in specs.ROUTING_KEY_INTERVALS if family.labels else ((),):
                    self._exposed.gauge(family.name, *extra).set(0)


class ExpertMetrics:
    """Expert balance, which SGLang's recorder reports from world rank 0 for the whole group."""

    def __init__(self, *, model_name: str, ranks: int, engine_type: str = "unified") -> None:
        labels = _scheduler_labels(model_name, engine_type, 0, ranks)
        self._balancedness = Exposed((specs.BALANCEDNESS,), labels)
        self._dispatched = Exposed((specs.dispatched(ranks),), {})  # `layer` is its only label

    def balancedness(self, mode: str, value: float) -> None:
        """Mean over layers of mean/max expert load per rank: 1.0 is balanced. `mode` is the forward's (`decode`, `extend`)."""
        self._balancedness.summary("eplb_balancedness", mode).observe(value)

    def dispatched(self, layer: int, per_rank: Sequence[int]) -> None:
        """Adds the tokens that one layer sent to each EP rank. On the page, bucket(le=r) - bucket(le=r-1) is rank r's load."""
        for rank, tokens in enumerate(per_rank):
            self._dispatched.observe_many("eplb_gpu_physical_count", str(layer), value=rank, count=tokens)


class TokenizerMetrics:
    """What the frontend sees of requests. It knows no ranks: nothing here can be split by rank."""

    def __init__(self, *, model_name: str, engine_type: str = "unified") -> None:
        self._exposed = Exposed(specs.TOKENIZER, {"model_name": model_name, "engine_type": engine_type})

    def first_token(self, seconds: float) -> None:
        """The first token of a streaming request, `seconds` after its arrival. SGLang books it then, not at the request's end."""
        self._exposed.histogram("time_to_first_token_seconds", "true").observe(seconds)

    def finished(self, *, prompt_tokens: int, cached_tokens: int, generation_tokens: int, ttft: float, e2e: float) -> None:
        """One finished streaming request; `ttft` and `e2e` in seconds from its arrival to its first and last token.

        The first one was booked when it came.
        """
        counter, histogram = self._exposed.counter, self._exposed.histogram
        counter("num_requests_total", "true").inc()
        counter("prompt_tokens_total", "true").inc(prompt_tokens)
        counter("generation_tokens_total", "true").inc(generation_tokens)
        if cached_tokens > 0:
            counter("cached_tokens_total", "total").inc(cached_tokens)
        histogram("prompt_tokens_histogram").observe(prompt_tokens)
        histogram("uncached_prompt_tokens_histogram").observe(prompt_tokens - cached_tokens)
        histogram("generation_tokens_histogram").observe(generation_tokens)
        histogram("e2e_request_latency_seconds", "true").observe(e2e)
        if generation_tokens > 1:
            histogram("request_time_per_output_token_seconds", "true").observe((e2e - ttft) / (generation_tokens - 1))

    def inter_token(self, seconds: float, tokens: int) -> None:
        """`tokens` tokens of one request that arrived together, `seconds` after the one before them."""
        if tokens > 0:
            self._exposed.observe_many("inter_token_latency_seconds", value=seconds / tokens, count=tokens)


_LOGGED = tuple(field.name for field in fields(LoggedStats))


def _scheduler_labels(model_name: str, engine_type: str, rank: int, ranks: int) -> dict[str, str]:
    values = (model_name, engine_type, str(rank), "0", str(rank), str(rank))
    labels = dict(zip(specs.SCHEDULER_LABELS, values, strict=True))
    if ranks == 1:
        del labels["dp_rank"]  # SGLang has no data-parallel controller then, and no such label
    return labels
