"""Which metric families the engine shows, as SGLang 0.5.23 declares them: names, types, labels, bucket bounds.

A table and nothing else; `tests/workload/test_face_metrics.py` holds it to what SGLang's own classes declare. Families of
features that the workload does not have (LoRA, grammars, host cache, storage) are not here: a real server without them does
not show them either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "sglang:"

SCHEDULER_LABELS = ("model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank", "dp_rank")
TOKENIZER_LABELS = ("model_name", "engine_type")

GaugeMode = Literal["mostrecent", "all", "livesum"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family; `labels` are those beyond the labels that its process puts on everything."""

    name: str  # without the prefix
    kind: Literal["gauge", "counter", "histogram", "summary"]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # upper bounds, in the unit of the name
    mode: GaugeMode = "mostrecent"  # gauges: how values of several processes become one page; `all` adds a `pid` label


def gauge(name: str, *labels: str, mode: GaugeMode = "mostrecent") -> Family:
    return Family(name, "gauge", labels, mode=mode)


def counter(name: str, *labels: str) -> Family:
    return Family(name, "counter", labels)


def histogram(name: str, buckets: tuple[float, ...], *labels: str) -> Family:
    return Family(name, "histogram", labels, buckets)


def summary(name: str, *labels: str) -> Family:
    return Family(name, "summary", labels)


# Said once, when the scheduler starts.
CONSTANTS = (
    gauge("max_total_num_tokens"),
    gauge("weight_memory_usage_gb"),
    gauge("kv_cache_memory_usage_gb"),
    gauge("graph_memory_usage_gb", "phase"),
    gauge("page_size"),
    gauge("num_pages"),
    gauge("context_len"),
    gauge("startup_available_gpu_memory_gb"),
)

# Set together whenever a scheduler logs: each prefill batch, every 40th decode result, every 30 s in true idle.
LOGGED = (
    gauge("num_running_reqs"),
    gauge("num_queue_reqs"),
    gauge("gen_throughput"),
    gauge("cache_hit_rate"),
    gauge("decode_sum_seq_lens"),
    gauge("token_usage"),
    gauge("full_token_usage"),
    gauge("num_used_tokens"),
    gauge("kv_available_tokens"),
    gauge("kv_evictable_tokens"),
    gauge("kv_used_tokens"),
    gauge("spec_accept_length"),
    gauge("spec_accept_rate"),
    gauge("spec_num_steps"),
    gauge("spec_num_draft_tokens"),
    gauge("num_retracted_reqs", mode="all"),
    gauge("num_prefill_bootstrap_queue_reqs"),
    gauge("num_prefill_inflight_queue_reqs"),
    gauge("num_decode_prealloc_queue_reqs"),
    gauge("num_decode_transfer_queue_reqs"),
    gauge("prealloc_full_token_usage"),
    gauge("utilization"),
    gauge("fwd_occupancy"),
    gauge("new_token_ratio"),
)

# Logged with the others, and always 0: dead in SGLang 0.5.23, or of a pool or queue that the workload does not have.
ALWAYS_ZERO = (
    gauge("num_grammar_queue_reqs"),
    gauge("swa_token_usage"),
    gauge("mamba_usage"),
    gauge("swa_available_tokens"),
    gauge("swa_evictable_tokens"),
    gauge("swa_used_tokens"),
    gauge("mamba_available_tokens"),
    gauge("mamba_evictable_tokens"),
    gauge("mamba_used_tokens"),
    gauge("spec_cap_length"),
    gauge("spec_block_accept_length"),
    gauge("num_paused_reqs", mode="all"),
    gauge("num_decode_host_receive_queue_reqs"),
    gauge("num_decode_deferred_kv_release_reqs"),
    gauge("pending_prealloc_token_usage"),
    gauge("prealloc_swa_token_usage"),
    gauge("is_cuda_graph"),
    gauge("num_unique_running_routing_keys"),
    gauge("routing_key_running_req_count", "gt", "le"),
    gauge("routing_key_all_req_count", "gt", "le"),
)
# The (gt, le] intervals of the two routing key gauges: not cumulative, despite the label.
ROUTING_KEY_INTERVALS = tuple(
    zip(
        ("0", "1", "2", "3", "5", "7", "10", "20", "50", "100", "200"),
        ("1", "2", "3", "5", "7", "10", "20", "50", "100", "200", "+Inf"),
        strict=True,
    )
)

STAGES = (
    "other",
    "recv_requests",
    "process_input_requests",
    "get_next_batch_to_run",
    "process_queue",
    "run_batch",
    "process_batch_result",
    "sanity_check_cache",
    "idle",
)
EFFECTIVE_TOKENS = ("input", "device_hit", "host_hit", "storage_hit")

# fmt: off
SYNC_WAIT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
IMBALANCE_RATIOS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0)
QUEUE_SECONDS = (
    0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0,
    100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0, 900.0, 1000.0, 1200.0, 1400.0, 1600.0, 1800.0, 2000.0, 2500.0, 3000.0,
)
TOKENS = (
    100.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 9000.0, 10000.0, 12500.0, 15000.0,
    17500.0, 20000.0, 22500.0, 25000.0, 27500.0, 30000.0, 35000.0, 40000.0, 60000.0, 80000.0, 100000.0, 200000.0, 300000.0, 400000.0,
    600000.0, 800000.0, 1000000.0, 1100000.0,
)
FIRST_TOKEN_SECONDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
E2E_SECONDS = (*FIRST_TOKEN_SECONDS, 600.0, 1200.0, 1800.0, 2400.0)
PER_TOKEN_SECONDS = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0,
)
TRANSFER_GB_S = (0.1, 0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0)
PREPARE_MS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)
TRANSFER_MS = (*PREPARE_MS, 5000.0)
TRANSFER_MB = (1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0)
GET_LOADS_SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
# fmt: on


def _exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(start * factor**i for i in range(count))


STAGE_SECONDS = _exponential(0.001, 1.62, 30)

# There at 0 from the start, every label value of ours included.
FROM_START = (
    counter("prefill_effective_tokens_total", "mode"),
    counter("scheduler_idle_seconds_total"),
    counter("scheduler_process_cpu_seconds_total"),
    counter("scheduler_stage_seconds_total", "category", "forward_overlap"),
    counter("dp_attention_tokens_total", "kind"),
    counter("dp_attention_pairs_total", "kind"),
    counter("dp_attention_steps_total", "rank_state"),
    histogram("dp_attention_token_imbalance_ratio", IMBALANCE_RATIOS),
    histogram("dp_attention_sync_wait_seconds", SYNC_WAIT_SECONDS),
)

# Absent until something happened: absent is not 0.
ON_EVENT = (
    counter("num_retracted_requests_total"),
    counter("num_retracted_input_tokens_total"),
    counter("num_retracted_output_tokens_total"),
    counter("cuda_graph_passes_total", "mode"),
    counter("realtime_tokens_total", "mode"),
    counter("forward_execution_seconds_total", "category"),
    counter("dp_cooperation_realtime_tokens_total", "mode", "num_prefill_ranks"),
    histogram("queue_time_seconds", QUEUE_SECONDS),
)

# The same, on an engine that is split into prefill and decode.
SPLIT = (
    histogram("kv_transfer_speed_gb_s", TRANSFER_GB_S),
    histogram("kv_transfer_latency_ms", TRANSFER_MS),
    histogram("kv_transfer_total_mb", TRANSFER_MB),
    histogram("kv_transfer_bootstrap_ms", PREPARE_MS),
    histogram("kv_transfer_alloc_ms", PREPARE_MS),
    counter("num_transfer_failed_reqs_total"),
    histogram("per_stage_req_latency_seconds", STAGE_SECONDS, "stage"),
)

SCHEDULER = (*CONSTANTS, *LOGGED, *ALWAYS_ZERO, *FROM_START, *ON_EVENT, *SPLIT)

BALANCEDNESS = summary("eplb_balancedness", "forward_mode")


def dispatched(ranks: int) -> Family:
    """Tokens sent to each EP rank, per layer; bucket r counts rank r, so that the bounds are the ranks themselves."""
    return histogram("eplb_gpu_physical_count", tuple(float(rank) for rank in range(ranks)), "layer")


TOKENIZER = (
    counter("prompt_tokens_total", "is_streaming"),
    counter("generation_tokens_total", "is_streaming"),
    counter("num_requests_total", "is_streaming"),
    counter("cached_tokens_total", "cache_source"),
    histogram("prompt_tokens_histogram", TOKENS),
    histogram("uncached_prompt_tokens_histogram", TOKENS),
    histogram("generation_tokens_histogram", TOKENS),
    histogram("time_to_first_token_seconds", FIRST_TOKEN_SECONDS, "is_streaming"),
    histogram("inter_token_latency_seconds", PER_TOKEN_SECONDS),
    histogram("request_time_per_output_token_seconds", PER_TOKEN_SECONDS, "is_streaming"),
    histogram("e2e_request_latency_seconds", E2E_SECONDS, "is_streaming"),
)

# Counted by the HTTP server around every request.
HTTP = (
    counter("http_requests_total", "endpoint", "method"),
    counter("http_responses_total", "endpoint", "status_code", "method"),
    gauge("http_requests_active", "endpoint", "method", mode="livesum"),
    gauge("routing_keys_active", mode="livesum"),
)
GET_LOADS = histogram("get_loads_duration_seconds", GET_LOADS_SECONDS)
