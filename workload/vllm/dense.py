"""The model that dense engines serve: a GLM-4-32B-like one, FP8, whole on every card."""

from __future__ import annotations

import msgspec

from workload.config import ClusterConfig, VllmFlags
from workload.device.roofline import Model

NAME = "glm-4-32b-like"
_LAYERS = 61

DENSE = Model(
    layers=_LAYERS,
    kv_bytes=2 * 2 * 128,  # per token and layer: keys and values of 2 KV heads of 128, one byte each
    attention_bytes=32.5e9 / _LAYERS,  # all weights: every token passes through all of them
    expert_bytes=0.0,
    prefill_pair_flops=48 * 128 * 4,  # 48 heads of 128, two FLOP for the score and two for the value: dense attention
    collective=0.0,  # nobody to meet
)


def served(config: ClusterConfig, flags: VllmFlags) -> ClusterConfig:
    """The configuration as a vLLM cluster that serves what `flags` say. Raises ValueError for a device that cannot."""
    return msgspec.structs.replace(config, vllm=flags, model_name=config.model_name if flags.moe else NAME)
