"""What is recorded per rank, whichever page it came from: one name, one unit and one meaning each. A table; pure.

A quantity that a source cannot give has no expression for it. Facts on the engines' series: docs/signals.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from collector import signals
from dashboards.series import Source, level, per_rank, rate, signal_level, signal_rate

SGLANG, VLLM, OURS = Source.SGLANG, Source.VLLM, Source.SLOWRANK


@dataclass(frozen=True, slots=True)
class Quantity:
    """A recorded series: `record` is its name, `unit` is Grafana's, `of` an expression by source."""

    record: str
    unit: str
    about: str
    of: Mapping[Source, str]

    def at(self, matchers: str) -> str:
        """A selector of this series."""
        return f"{self.record}{{{matchers}}}"


QUANTITIES: dict[str, Quantity] = {}
"""By record name, in the order in which they are recorded."""


def _quantity(record: str, unit: str, about: str, **of: str) -> Quantity:
    by_source = {Source(name): per_rank(Source(name), expression) for name, expression in of.items()}
    QUANTITIES[record] = Quantity(record, unit, about, by_source)
    return QUANTITIES[record]


_SGLANG_STEPS = rate(SGLANG, "dp_attention_steps_total")
_STEPPING = f"({_SGLANG_STEPS} > 0)"  # of the TP ranks of a rank only the one that reports has steps
_OUR_STEPS = (
    f"({signal_rate(signals.STEPS_ACTIVE)} + {signal_rate(signals.STEPS_IDLE)} > 0 or {signal_rate(signals.DECODE_STEPS)})"
    # counted steps need a flag of the engine; consecutive decode steps need none
)
_REALTIME = "realtime_tokens_total"
_SCHEDULED = rate(SGLANG, "dp_attention_tokens_total", kind="scheduled")  # stays 0 without its environment variable
_NOTHING_YET = f"0 * {rate(SGLANG, _REALTIME)}"  # SGLang shows a label's series from its first count on: a rank at work has counted none
_DECODES = rate(SGLANG, "cuda_graph_passes_total", mode="decode_.*")

STEPS = _quantity(
    "rank:slowrank_steps:rate1m",
    "ops",
    "Steps per second; equal on all ranks of a group that steps together",
    sglang=_SGLANG_STEPS,
    slowrank=_OUR_STEPS,
)
STEP_TIME = _quantity(
    "rank:slowrank_step_seconds:rate1m",
    "s",
    "Time of one step; equal on all ranks of a group that steps together",
    sglang=f"1 / {_STEPPING}",
    vllm=f"{rate(VLLM, 'inter_token_latency_seconds_sum')} / ({rate(VLLM, 'inter_token_latency_seconds_count')} > 0)",
    slowrank=f"{signal_rate(signals.DECODE_TIME)} / ({signal_rate(signals.DECODE_STEPS)} > 0)",
)
WAIT = _quantity(
    "rank:slowrank_wait_per_step_seconds:rate1m",
    "s",
    "Wait for the other ranks in the host exchanges of one step: control broadcast and metadata exchange together",
    sglang=(
        f"({rate(SGLANG, 'scheduler_stage_seconds_total', category='recv_requests')}"
        f" + {rate(SGLANG, 'dp_attention_sync_wait_seconds_sum')}) / {_STEPPING}"
    ),
    slowrank=f"({signal_rate(signals.RECV_WAIT)} + {signal_rate(signals.SYNC_WAIT)}) / ({_OUR_STEPS} > 0)",
)
PAIRS = _quantity(
    "rank:slowrank_pairs_per_step:rate1m",
    "short",
    "Attention pairs in one step, the work of attention; resident tokens stand in where an engine counts no pairs",
    sglang=f"{rate(SGLANG, 'dp_attention_pairs_total', kind='scheduled')} / {_STEPPING}",
    slowrank=f"({signal_rate(signals.ATTENTION_PAIRS)} / ({_OUR_STEPS} > 0) or {signal_level(signals.RESIDENT_TOKENS)})",
)
TOKENS = _quantity(
    "rank:slowrank_tokens:rate1m",
    "short",
    "Tokens computed per second, prompt and generated",
    sglang=f"({_SCHEDULED} > 0 or {rate(SGLANG, _REALTIME, mode='prefill_compute|decode')})",
    vllm=f"{rate(VLLM, 'prompt_tokens_by_source_total', source='local_compute')} + {rate(VLLM, 'generation_tokens_total')}",
    slowrank=signal_rate(signals.ATTENTION_TOKENS),
)
PREFILL = _quantity(
    "rank:slowrank_prefill_tokens:rate1m",
    "short",
    "Prompt tokens computed per second, cache hits excluded",
    sglang=f"({rate(SGLANG, _REALTIME, mode='prefill_compute')} or {_NOTHING_YET})",
    vllm=rate(VLLM, "prompt_tokens_by_source_total", source="local_compute"),
    slowrank=signal_rate(signals.PREFILL_TOKENS),
)
HIT_RATIO = _quantity(
    "rank:slowrank_prefix_hit_ratio:rate1m",
    "percentunit",
    "Share of prompt tokens that the prefix cache held",
    sglang=f"{rate(SGLANG, _REALTIME, mode='prefill_cache')} / ({rate(SGLANG, _REALTIME, mode='prefill_.*')} > 0)",
    vllm=(f"{rate(VLLM, 'prompt_tokens_by_source_total', source='local_cache_hit')} / ({rate(VLLM, 'prompt_tokens_by_source_total')} > 0)"),
    slowrank=(f"{signal_rate(signals.CACHED_TOKENS)} / ({signal_rate(signals.CACHED_TOKENS)} + {signal_rate(signals.PREFILL_TOKENS)} > 0)"),
)
SCHEDULER_CPU = _quantity(
    "rank:slowrank_scheduler_cpu:rate1m",
    "percentunit",
    "CPU time of the rank's scheduler process, cores",
    sglang=rate(SGLANG, "scheduler_process_cpu_seconds_total"),
    slowrank=signal_rate(signals.SCHEDULER_CPU),
)
RETRACTED = _quantity(
    "rank:slowrank_retracted_requests:rate1m",
    "reqps",
    "Requests pushed out of the KV pool per second (vLLM: preemptions)",
    sglang=f"({rate(SGLANG, 'num_retracted_requests_total')} or {_NOTHING_YET})",
    vllm=rate(VLLM, "num_preemptions_total"),
    slowrank=signal_rate(signals.RETRACTED),
)
EAGER = _quantity(
    "rank:slowrank_eager_share:rate1m",
    "percentunit",
    "Share of decode passes without a CUDA graph",
    sglang=f"({rate(SGLANG, 'cuda_graph_passes_total', mode='decode_none')} or 0 * {_DECODES}) / ({_DECODES} > 0)",
    slowrank=f"{signal_rate(signals.EAGER_STEPS)} / ({signal_rate(signals.EAGER_STEPS)} + {signal_rate(signals.GRAPH_STEPS)} > 0)",
)
RUNNING = _quantity(
    "rank:slowrank_running_requests",
    "short",
    "Requests in the decode batch; SGLang's own gauge freezes on a rank that only steps for the others",
    sglang=level(SGLANG, "num_running_reqs", priority=""),
    vllm=level(VLLM, "num_requests_running"),
    slowrank=signal_level(signals.RUNNING),
)
WAITING = _quantity(
    "rank:slowrank_waiting_requests",
    "short",
    "Requests queued on the rank",
    sglang=level(SGLANG, "num_queue_reqs", priority=""),
    vllm=level(VLLM, "num_requests_waiting"),
    slowrank=signal_level(signals.WAITING),
)
KV_USAGE = _quantity(
    "rank:slowrank_kv_usage_ratio",
    "percentunit",
    "Share of the KV pool in use",
    sglang=level(SGLANG, "token_usage", priority=""),
    vllm=level(VLLM, "kv_cache_usage_perc"),
    slowrank=signal_level(signals.KV_USAGE),
)
