"""Every PromQL expression that evidence refers to, named once. Per rank over SGLang's own series; add your own instance matcher."""

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
