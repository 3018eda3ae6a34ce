"""Every PromQL expression that evidence refers to, named once. Per rank over the engine's own series; add your own instance matcher."""

from __future__ import annotations

STEPS = "sum by (dp_rank) (rate(sglang:dp_attention_steps_total[1m]))"

ACTIVE_SHARE = f'sum by (dp_rank) (rate(sglang:dp_attention_steps_total{{rank_state="active"}}[1m])) / {STEPS}'

STEP_TIME = f"1 / {STEPS}"

WAIT_PER_STEP = (
    '(sum by (dp_rank) (rate(sglang:scheduler_stage_seconds_total{category="recv_requests"}[1m]))'
    " + sum by (dp_rank) (rate(sglang:dp_attention_sync_wait_seconds_sum[1m])))"
    f" / {STEPS}"
)

SYNC_WAIT_PER_STEP = f"sum by (dp_rank) (rate(sglang:dp_attention_sync_wait_seconds_sum[1m])) / {STEPS}"

SCHEDULER_CPU = "sum by (dp_rank) (rate(sglang:scheduler_process_cpu_seconds_total[1m]))"

PAIRS_PER_STEP = f'sum by (dp_rank) (rate(sglang:dp_attention_pairs_total{{kind="scheduled"}}[1m])) / {STEPS}'

TOKENS_PER_STEP = f'sum by (dp_rank) (rate(sglang:dp_attention_tokens_total{{kind="scheduled"}}[1m])) / {STEPS}'

ANSWER_WAIT = (
    'sum(rate(sglang:time_to_first_token_seconds_sum{is_streaming="true"}[1m]))'
    ' / sum(rate(sglang:time_to_first_token_seconds_count{is_streaming="true"}[1m]))'
)

PREFILL_TOKENS = 'sum by (dp_rank) (rate(sglang:realtime_tokens_total{mode="prefill_compute"}[1m]))'

BALANCEDNESS = "rate(sglang:eplb_balancedness_sum[1m]) / rate(sglang:eplb_balancedness_count[1m])"

EXPERT_LOAD = "sum by (le) (rate(sglang:eplb_gpu_physical_count_bucket[1m]))"

RESIDENT_TOKENS = "max by (dp_rank) (sglang:num_used_tokens)"

RUNNING = "sglang:num_running_reqs"

RETRACTED = "sum by (dp_rank) (rate(sglang:num_retracted_requests_total[1m]))"

KV_USAGE = "max by (dp_rank) (sglang:token_usage)"

EAGER_SHARE = (
    'sum by (dp_rank) (rate(sglang:cuda_graph_passes_total{mode="decode_none"}[1m]))'
    ' / sum by (dp_rank) (rate(sglang:cuda_graph_passes_total{mode=~"decode_.*"}[1m]))'
)

HIT_RATIO = (
    'sum by (dp_rank) (rate(sglang:realtime_tokens_total{mode="prefill_cache"}[1m]))'
    ' / sum by (dp_rank) (rate(sglang:realtime_tokens_total{mode=~"prefill_.*"}[1m]))'
)

ACCEPT_LENGTH = "max by (dp_rank) (sglang:spec_accept_length)"

PD_QUEUES = {
    "bootstrap_queue": "max by (dp_rank) (sglang:num_prefill_bootstrap_queue_reqs)",
    "inflight_queue": "max by (dp_rank) (sglang:num_prefill_inflight_queue_reqs)",
    "prealloc_queue": "max by (dp_rank) (sglang:num_decode_prealloc_queue_reqs)",
    "transfer_queue": "max by (dp_rank) (sglang:num_decode_transfer_queue_reqs)",
}

TRANSFER_SPEED = (
    "1e9 * sum by (dp_rank) (rate(sglang:kv_transfer_speed_gb_s_sum[1m]))"
    " / sum by (dp_rank) (rate(sglang:kv_transfer_speed_gb_s_count[1m]))"
)

CARD_CLOCK = "avg_over_time(DCGM_FI_DEV_SM_CLOCK[1m]) * 1e6"

CARD_MEMORY_CLOCK = "avg_over_time(DCGM_FI_DEV_MEM_CLOCK[1m]) * 1e6"

CARD_REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"

CARD_XID = "DCGM_FI_DEV_XID_ERRORS"

CARD_CORRECTED = "rate(DCGM_FI_DEV_ECC_SBE_VOL_TOTAL[1m])"

CARD_UNCORRECTED = "rate(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1m])"

CARD_REMAPPED = "rate(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1m])"

CARD_REMAP_FAILED = "DCGM_FI_DEV_ROW_REMAP_FAILURE"

CARD_MEMORY_TEMPERATURE = "DCGM_FI_DEV_MEMORY_TEMP"

CARD_LINK_ERRORS = (
    'sum without (__name__) (rate({__name__=~"DCGM_FI_DEV_NVLINK_(CRC_FLIT|CRC_DATA|REPLAY|RECOVERY)_ERROR_COUNT_TOTAL"}[1m]))'
)

CARD_PCIE_REPLAYS = "rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1m])"

CARD_PCIE_WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH"

# vLLM's, whose ranks are told apart by instance and engine

VLLM_STEP_TIME = (
    "sum by (instance, engine) (rate(vllm:inter_token_latency_seconds_sum[1m]))"
    " / sum by (instance, engine) (rate(vllm:inter_token_latency_seconds_count[1m]))"
)

VLLM_RUNNING = "vllm:num_requests_running"

VLLM_GENERATED = "sum by (instance, engine) (rate(vllm:generation_tokens_total[1m]))"

VLLM_KV_USAGE = "vllm:kv_cache_usage_perc"

VLLM_RETRACTED = "sum by (instance, engine) (rate(vllm:num_preemptions_total[1m]))"

VLLM_PREFILL_TOKENS = 'sum by (instance, engine) (rate(vllm:prompt_tokens_by_source_total{source="local_compute"}[1m]))'

VLLM_HIT_RATIO = (
    'sum by (instance, engine) (rate(vllm:prompt_tokens_by_source_total{source="local_cache_hit"}[1m]))'
    " / sum by (instance, engine) (rate(vllm:prompt_tokens_by_source_total[1m]))"
)

VLLM_ANSWER_WAIT = "sum(rate(vllm:time_to_first_token_seconds_sum[1m])) / sum(rate(vllm:time_to_first_token_seconds_count[1m]))"

_ON_VLLM = {
    ANSWER_WAIT: VLLM_ANSWER_WAIT,
    RUNNING: VLLM_RUNNING,
    RESIDENT_TOKENS: VLLM_KV_USAGE,
    KV_USAGE: VLLM_KV_USAGE,
    STEP_TIME: VLLM_STEP_TIME,
    RETRACTED: VLLM_RETRACTED,
    PREFILL_TOKENS: VLLM_PREFILL_TOKENS,
    HIT_RATIO: VLLM_HIT_RATIO,
}


def on(kind: str, expression: str) -> str:
    """The expression for an engine of this kind; "" when that engine has no such series."""
    return _ON_VLLM.get(expression, "" if "sglang:" in expression else expression) if kind == "vllm" else expression
