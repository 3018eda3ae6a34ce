"""The metric families of vLLM 0.32's front end, by table: names, labels beside `model_name` and `engine`, buckets.

Source: vllm/v1/metrics/loggers.py of 0.32.0 (0.33.0 has the same), held against pages of a real server by a test. Families that need
a flag, a connector or a kind of model which the cluster does not play are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# --max-model-len of the cluster's models is 262,144; token histograms have the 1-2-5 series up to it
_TOKENS = tuple(float(mantissa * 10**exponent) for exponent in range(6) for mantissa in (1, 2, 5))[:-1]
_ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


@dataclass(frozen=True, slots=True)
class VllmFamily:
    """`name` without the prefix `vllm:`; a counter's without `_total`. `values`: what its own label takes, all shown from the start."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    label: str | None = None
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    engine: bool = True  # False: of the whole front end, no label `engine`


_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
_TIERS = ("device", "host", "disk", "p2p", "external_unspecified")
_REASONS = ("stop", "length", "abort", "error", "repetition")
_SLEEP = ("awake", "weights_offloaded", "discard_all")

FAMILIES = (
    VllmFamily("num_requests_running", "gauge"),
    VllmFamily("num_requests_waiting", "gauge"),
    VllmFamily("num_requests_waiting_by_reason", "gauge", "reason", ("capacity", "deferred")),
    VllmFamily("engine_sleep_state", "gauge", "sleep_state", _SLEEP),
    VllmFamily("kv_cache_usage_perc", "gauge"),
    VllmFamily("estimated_flops_per_gpu", "counter"),
    VllmFamily("estimated_read_bytes_per_gpu", "counter"),
    VllmFamily("estimated_write_bytes_per_gpu", "counter"),
    VllmFamily("prefix_cache_queries", "counter"),
    VllmFamily("prefix_cache_hits", "counter"),
    VllmFamily("external_prefix_cache_queries", "counter"),
    VllmFamily("external_prefix_cache_hits", "counter"),
    VllmFamily("mm_cache_queries", "counter"),
    VllmFamily("mm_cache_hits", "counter"),
    VllmFamily("num_preemptions", "counter"),
    VllmFamily("prompt_tokens", "counter"),
    VllmFamily("prompt_tokens_by_source", "counter", "source", _SOURCES),
    VllmFamily("prompt_tokens_cached", "counter"),
    VllmFamily("prompt_tokens_cached_by_source", "counter", "source", _TIERS),
    VllmFamily("generation_tokens", "counter"),
    VllmFamily("request_success", "counter", "finished_reason", _REASONS),
    VllmFamily("admission_rejections", "counter", "reason", ("max_num_queued_reqs", "max_num_queued_tokens"), engine=False),
    VllmFamily("request_prompt_tokens", "histogram", buckets=_TOKENS),
    VllmFamily("request_generation_tokens", "histogram", buckets=_TOKENS),
    VllmFamily("iteration_tokens_total", "histogram", buckets=(1.0, *(float(2**n) for n in range(3, 15)))),
    VllmFamily("request_max_num_generation_tokens", "histogram", buckets=_TOKENS),
    VllmFamily("request_params_n", "histogram", buckets=(1.0, 2.0, 5.0, 10.0, 20.0)),
    VllmFamily("request_params_max_tokens", "histogram", buckets=_TOKENS),
    VllmFamily("time_to_first_token_seconds", "histogram", buckets=_TTFT),
    VllmFamily("inter_token_latency_seconds", "histogram", buckets=_ITL),
    VllmFamily("request_time_per_output_token_seconds", "histogram", buckets=_ITL),
    VllmFamily("e2e_request_latency_seconds", "histogram", buckets=_LATENCY),
    VllmFamily("request_queue_time_seconds", "histogram", buckets=_LATENCY),
    VllmFamily("request_inference_time_seconds", "histogram", buckets=_LATENCY),
    VllmFamily("request_prefill_time_seconds", "histogram", buckets=_LATENCY),
    VllmFamily("request_decode_time_seconds", "histogram", buckets=_LATENCY),
    VllmFamily("request_num_preemptions", "histogram", buckets=(1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)),
    VllmFamily("request_prefill_kv_computed_tokens", "histogram", buckets=_TOKENS),
)

BLOCK_TOKENS = 16  # vLLM's block size on CUDA


def cache_config(kv_tokens: int, max_model_len: int) -> dict[str, str]:
    """The labels of `vllm:cache_config_info` beside `engine`: every field of CacheConfig, as a default server on CUDA has it."""
    unset = (
        "cache_hit_alignment_tokens",
        "hash_block_size",
        "kv_cache_layout",
        "kv_cache_memory_bytes",
        "kv_offloading_size",
        "mamba_block_size",
        "mamba_page_size_padded",
        "num_cpu_blocks",
        "num_gpu_blocks_override",
        "prefix_match_unit",
        "skip_page_size_padded",
        "sliding_window",
    )
    off = (
        "enable_mamba_shared_prefix_checkpoint",
        "is_attention_free",
        "kv_sharing_fast_prefill",
        "use_kda_recoverssm",
        "use_replayssm",
        "user_specified_block_size",
    )
    return {
        **dict.fromkeys(unset, "None"),
        **dict.fromkeys(off, "False"),
        "_block_size_resolved": "True",
        "block_size": str(BLOCK_TOKENS),
        "cache_dtype": "fp8",
        "effective_attention_block_size": str(BLOCK_TOKENS),
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.9",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_max_concurrency": str(kv_tokens / max_model_len),
        "kv_cache_size_tokens": str(kv_tokens),
        "kv_offloading_backend": "native",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_ssm_cache_dtype": "auto",
        "num_gpu_blocks": str(kv_tokens // BLOCK_TOKENS),
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "replayssm_buffer_len": "16",
        "swa_bounded_replay": "True",
    }
