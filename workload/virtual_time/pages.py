"""The bodies of `/v1/loads` and `/metrics` at one moment. Labels never change, so a page is a template and its numbers.

Both pages are as `workload.face` serves them; of the metric families they show those of `workload.virtual_time.columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np

from workload.config import VERSION, ClusterConfig
from workload.device.names import accelerator
from workload.device.roofline import Roofline
from workload.face.exposed import HELP
from workload.face.loads import DisaggregationSection, LoadSnapshot, MemorySection, QueuesSection
from workload.face.loads_page import as_object, parse_include
from workload.face.specs import PREFIX, SCHEDULER_LABELS
from workload.reporter import GRAPH_GB, WEIGHT_GB
from workload.virtual_time.columns import ABSENT_AT_ZERO, FIRST_TOKEN, Column
from workload.virtual_time.hosts import Array
from workload.virtual_time.ledger import Snapshot

METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
LOADS_TYPE = "application/json"


class MetricsPage:
    """Renders counters; a series that counts events appears with the first one, as prometheus_client's do."""

    def __init__(self, config: ClusterConfig, columns: Sequence[Column]) -> None:
        self._columns = columns
        common = [(config.model_name, config.engine.engine_type, str(r), "0", str(r), str(r)) for r in range(config.ranks)]
        self._front_end = dict(zip(SCHEDULER_LABELS[:2], common[0], strict=False))  # its series know no rank
        self._common = [dict(zip(SCHEDULER_LABELS, values, strict=True)) for values in common]
        # a histogram's and a summary's samples appear together, with the first observation
        groups: dict[tuple[str, tuple[str, ...], int], list[int]] = {}
        for place, column in enumerate(columns):
            if column.family.name in ABSENT_AT_ZERO:
                groups.setdefault((column.family.name, column.values, column.rank), []).append(place)
        self._groups = list(groups.values())
        self._firsts = np.array([max(group, key=lambda place: columns[place].sample.endswith("_count")) for group in self._groups])
        self._shown: bytes | None = None
        self._template = ""
        self._places = np.zeros(0, dtype=int)

    def render(self, values: Array) -> str:
        """The body. Every number is written as Python does, and so as prometheus_client does."""
        present = values[self._firsts] > 0
        if (shown := present.tobytes()) != self._shown:
            self._shown = shown
            self._lay_out({place for group, there in zip(self._groups, present, strict=True) if not there for place in group})
        return self._template % tuple(values[self._places].tolist())

    def _lay_out(self, absent: set[int]) -> None:
        lines: list[str] = []
        places: list[int] = []
        family = None
        for place, column in enumerate(self._columns):
            if place in absent:
                continue
            if column.family is not family:
                family = column.family
                lines += [f"# HELP {PREFIX}{family.name} {HELP}", f"# TYPE {PREFIX}{family.name} {family.kind}"]
            lines.append(f"{PREFIX}{column.sample}{{{self._labels(column)}}} %r")
            places.append(place)
        self._template = "\n".join(lines) + "\n"
        self._places = np.array(places)

    def _labels(self, column: Column) -> str:
        own = dict(zip(column.family.labels, column.values, strict=True))
        common = self._common[column.rank]
        if column.family.name == "eplb_gpu_physical_count":
            common = {}
        elif column.family is FIRST_TOKEN:
            common = self._front_end
        labels = {**common, **own, **({"le": column.le} if column.le else {})}
        return ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))


_LIVE = (
    "timestamp",
    "num_running_reqs",
    "num_waiting_reqs",
    "num_waiting_uncached_tokens",
    "num_used_tokens",
    "num_total_tokens",
    "num_active_tokens",
    "token_usage",
    "gen_throughput",
    "cache_hit_rate",
    "total_prefill_uncached_tokens",
    "total_prefill_busy_us",
    "decode_moments",
)


class LoadsPage:
    """Renders snapshots. `start` is the simulation's beginning in unix seconds."""

    def __init__(self, config: ClusterConfig, start: float) -> None:
        self._start = start
        self._capacity = config.limits.kv_tokens
        kv_gb = round(Roofline.of(config).kv_read(config.limits.kv_tokens) / 1e9, 3)
        bodies = []
        for rank in range(config.ranks):
            entry = as_object(
                LoadSnapshot(
                    dp_rank=rank,
                    max_total_num_tokens=config.limits.kv_tokens,
                    max_running_requests=config.limits.max_running_requests,
                    memory=MemorySection(WEIGHT_GB, kv_gb, GRAPH_GB, config.limits.kv_tokens),
                    disaggregation=DisaggregationSection(),
                    queues=QueuesSection(),
                ),
                parse_include(None),
            )
            entry |= dict.fromkeys(_LIVE, _HOLE) | {"queues": msgspec.structs.asdict(QueuesSection()) | {"waiting": _HOLE}}
            bodies.append(msgspec.json.encode(entry).decode())
        head = {"timestamp": _HOLE, "version": VERSION, "accelerator": accelerator(config), "num_accelerators": 1}
        page = msgspec.json.encode(head).decode()[:-1] + ',"loads":[' + ",".join(bodies) + "]}"
        self._template = page.replace("%", "%%").replace(f'"{_HOLE}"', "%b").encode()

    def render(self, at: float, snapshots: Sequence[Snapshot]) -> str:
        """The body at `at` seconds from the start."""
        values: list[object] = [datetime.fromtimestamp(self._start + at, UTC).isoformat(timespec="microseconds")]
        for snapshot in snapshots:
            p = snapshot.known
            values += (
                self._start + p.at,
                p.running,
                p.waiting,
                p.uncached,
                p.used,
                p.total,
                p.total,
                round(p.used / self._capacity, 4),
                round(snapshot.throughput, 2),
                p.hit_rate,
                p.prefill_tokens,
                p.prefill_us,
                snapshot.moments if snapshot.moments[0] else None,
                p.waiting,
            )
        # one call for all of them, a value a line, takes half as long as Python's own formatting
        *lines, _ = _ENCODER.encode_lines(values).split(b"\n")
        return (self._template % tuple(lines)).decode()


_ENCODER = msgspec.json.Encoder()
_HOLE = "a number"  # where one goes: a JSON string that no page has
