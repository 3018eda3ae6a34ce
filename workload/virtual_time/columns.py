"""Which series the pages of virtual time show: of the families in `workload.face.specs`, those that a diagnosis reads.

One number per column; a column is one series, and its place in the ledger's vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from workload.config import ClusterConfig
from workload.device.experts import SAMPLED_LAYERS
from workload.face import specs
from workload.face.specs import Family

FAMILIES = tuple(
    family
    for family in specs.SCHEDULER
    if family.name
    in {
        "scheduler_idle_seconds_total",
        "scheduler_process_cpu_seconds_total",
        "scheduler_stage_seconds_total",
        "dp_attention_tokens_total",
        "dp_attention_pairs_total",
        "dp_attention_steps_total",
        "dp_attention_token_imbalance_ratio",
        "dp_attention_sync_wait_seconds",
        "cuda_graph_passes_total",
        "realtime_tokens_total",
        "forward_execution_seconds_total",
        "num_retracted_requests_total",
        "num_retracted_input_tokens_total",
        "num_retracted_output_tokens_total",
    }
)

# The values of each family's own labels that virtual time brings about.
VALUES: dict[str, tuple[tuple[str, ...], ...]] = {
    "scheduler_stage_seconds_total": tuple((stage, "none") for stage in specs.STAGES),
    "dp_attention_tokens_total": (("scheduled",), ("imbalance",)),
    "dp_attention_pairs_total": (("scheduled",), ("imbalance",)),
    "dp_attention_steps_total": (("active",), ("idle",)),
    "cuda_graph_passes_total": (("decode_cuda_graph",), ("decode_none",), ("prefill_none",)),
    "realtime_tokens_total": (("prefill_compute",), ("prefill_cache",), ("decode",)),
    "forward_execution_seconds_total": (("decode",), ("target_verify",), ("extend",), ("idle",)),
    "eplb_balancedness": (("decode",), ("extend",)),
    "time_to_first_token_seconds": (("true",),),
    "eplb_gpu_physical_count": tuple((str(layer),) for layer in SAMPLED_LAYERS),
}
FIRST_TOKEN = next(family for family in specs.TOKENIZER if family.name == "time_to_first_token_seconds")
ABSENT_AT_ZERO = {family.name for family in specs.ON_EVENT} | {"eplb_balancedness", "eplb_gpu_physical_count", FIRST_TOKEN.name}


@dataclass(frozen=True, slots=True)
class Column:
    """One sample of one rank."""

    family: Family
    sample: str  # without the prefix
    values: tuple[str, ...]  # of the family's own labels
    rank: int
    le: str = ""


def forward(config: ClusterConfig) -> str:
    """What the forward of a decode is called."""
    return "decode" if config.engine.speculation is None else "target_verify"


def columns(config: ClusterConfig) -> list[Column]:
    """All columns, family by family and rank by rank within it."""
    found = [column for family in FAMILIES for rank in range(config.ranks) for column in _of(family, rank)]
    found += _of(specs.BALANCEDNESS, 0)
    found += _of(specs.dispatched(config.ranks), 0)
    found += _of(FIRST_TOKEN, 0)
    return found


def _of(family: Family, rank: int) -> list[Column]:
    found = []
    for values in VALUES.get(family.name, ((),)):
        if family.kind == "histogram":
            bounds = [*(repr(bound) for bound in family.buckets), "+Inf"]
            found.append(Column(family, f"{family.name}_sum", values, rank))
            found += [Column(family, f"{family.name}_bucket", values, rank, le) for le in bounds]
            found.append(Column(family, f"{family.name}_count", values, rank))
        elif family.kind == "summary":
            found += [Column(family, f"{family.name}_{part}", values, rank) for part in ("count", "sum")]
        else:
            found.append(Column(family, family.name, values, rank))
    return found


def key(column: Column) -> str:
    """A name for the column without its rank: `dp_attention_pairs_total{kind="imbalance"}`."""
    labels = dict(zip(column.family.labels, column.values, strict=True)) | ({"le": column.le} if column.le else {})
    return column.sample + ("{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else "")
