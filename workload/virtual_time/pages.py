"""The bodies of `/v1/loads` and `/metrics` at one moment. Labels never change, so a page is a template and its numbers.

Both pages are as `workload.face` serves them; of the metric families they show those of `workload.virtual_time.columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from workload.config import VERSION, ClusterConfig
from workload.device.names import accelerator
from workload.device.roofline import Roofline
from workload.face.exposed import HELP
from workload.face.loads import DisaggregationSection, LoadSnapshot, MemorySection, QueuesSection, SpeculativeSection
from workload.face.loads_page import as_object, parse_include
from workload.face.specs import PREFIX, SCHEDULER_LABELS
from workload.reporter import GRAPH_GB, WEIGHT_GB
from workload.virtual_time.columns import ABSENT_AT_ZERO, FIRST_TOKEN, Column
from workload.virtual_time.hosts import Array
from workload.virtual_time.snapshots import Snapshot

METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
LOADS_TYPE = "application/json"


class _Body:
    """A body with a hole, `%b`, for every number."""

    def __init__(self, template: str) -> None:
        self._plain = template.encode()
        # most of a page is labels, and quoting them each time takes longer than compressing the whole
        self._quoted = msgspec.json.encode(template)

    def text(self, numbers: list[bytes]) -> str:
        return (self._plain % tuple(numbers)).decode()

    def quoted(self, numbers: list[bytes]) -> bytes:
        """As a JSON string; a number has nothing to be quoted."""
        return self._quoted % tuple(numbers)


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
        self._body = _Body("")
        self._places = np.zeros(0, dtype=int)

    def render(self, values: Array) -> str:
        """The body. Every number is written as Python does, and so as prometheus_client does."""
        numbers = self._numbers(values)
        return self._body.text(numbers)

    def quoted(self, values: Array) -> bytes:
        """The body as a JSON string."""
        numbers = self._numbers(values)
        return self._body.quoted(numbers)

    def _numbers(self, values: Array) -> list[bytes]:
        """What is to be filled in; lays the body out anew where a series has appeared."""
        present = values[self._firsts] > 0
        if (shown := present.tobytes()) != self._shown:
            self._shown = shown
            self._lay_out({place for group, there in zip(self._groups, present, strict=True) if not there for place in group})
        numbers = values[self._places]
        written = _written(numbers.tolist())
        # in plain digits both encoders write a number alike, with an exponent they do not
        for odd in np.flatnonzero((numbers >= _PLAIN[1]) | ((numbers < _PLAIN[0]) & (numbers > 0))).tolist():
            written[odd] = repr(float(numbers[odd])).encode()
        return written

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
            lines.append(f"{PREFIX}{column.sample}{{{self._labels(column)}}} %b")
            places.append(place)
        self._body = _Body("\n".join(lines) + "\n")
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
        self._config = config
        self._capacity = config.limits.kv_tokens
        self._shown: list[bool] | None = None  # which ranks have a speculative section
        self._body = _Body("")

    def render(self, at: float, snapshots: Sequence[Snapshot]) -> str:
        """The body at `at` seconds from the start."""
        numbers = self._numbers(at, snapshots)
        return self._body.text(numbers)

    def quoted(self, at: float, snapshots: Sequence[Snapshot]) -> bytes:
        """The body as a JSON string."""
        numbers = self._numbers(at, snapshots)
        return self._body.quoted(numbers)

    def _numbers(self, at: float, snapshots: Sequence[Snapshot]) -> list[bytes]:
        """What is to be filled in; lays the body out anew where a section has appeared."""
        if (shown := [snapshot.known.verified > 0 for snapshot in snapshots]) != self._shown:
            self._shown = shown
            self._lay_out(shown)
        values: list[object] = []
        for snapshot in snapshots:
            p = snapshot.known
            values += (
                self._start + p.at,
                p.running,
                p.waiting,
                p.uncached,
                p.used,
                p.total,
                *((p.total,) if p.hand_over is None else (p.hand_over.active_tokens, p.hand_over.ready_tokens)),
                round(p.used / self._capacity, 4),
                round(snapshot.throughput, 2),
                p.hit_rate,
                p.prefill_tokens,
                p.prefill_us,
                snapshot.moments if snapshot.moments[0] else None,
            )
            if p.verified:
                values += ((p.verified + p.accepted) / p.verified, p.accept_rate)
            values += (p.waiting,) if p.hand_over is None else msgspec.structs.astuple(p.hand_over)[2:]
        return [datetime.fromtimestamp(self._start + at, UTC).isoformat(timespec="microseconds").encode(), *_written(values)]

    def _lay_out(self, speculates: Sequence[bool]) -> None:
        limits = self._config.limits
        kv_gb = round(Roofline.of(self._config).kv_read(limits.kv_tokens) / 1e9, 3)
        bodies = []
        for rank, speculating in enumerate(speculates):
            hands_over = self._config.engine.split is not None
            snapshot = LoadSnapshot(
                dp_rank=rank,
                max_total_num_tokens=limits.kv_tokens,
                max_running_requests=limits.max_running_requests,
                memory=MemorySection(WEIGHT_GB, kv_gb, GRAPH_GB, limits.kv_tokens),
                speculative=SpeculativeSection(0.0, 0.0) if speculating else None,
                utilization=-1.0 if self._config.engine.role == "prefill" else 0.0,
                disaggregation=DisaggregationSection(self._config.engine.role),
                queues=QueuesSection(),
            )
            entry = as_object(snapshot, parse_include(None)) | dict.fromkeys(_LIVE, _HOLE)
            queues = msgspec.structs.asdict(QueuesSection()) | {"waiting": _HOLE}
            if hands_over:
                entry["num_prealloc_ready_tokens"] = queues["prealloc_ready"] = _HOLE
                holes = dict.fromkeys(DisaggregationSection.__struct_fields__[1:], _HOLE)  # after the mode
                entry["disaggregation"] = msgspec.structs.asdict(DisaggregationSection(self._config.engine.role)) | holes
            entry["queues"] = queues
            if speculating:
                entry["speculative"] = dict.fromkeys(SpeculativeSection.__struct_fields__, _HOLE)
            bodies.append(msgspec.json.encode(entry).decode())
        head = {"timestamp": _TIME, "version": VERSION, "accelerator": accelerator(self._config), "num_accelerators": 1}
        page = msgspec.json.encode(head).decode()[:-1] + ',"loads":[' + ",".join(bodies) + "]}"
        self._body = _Body(page.replace("%", "%%").replace(f'"{_HOLE}"', "%b").replace(_TIME, "%b"))


_ENCODER = msgspec.json.Encoder()
_HOLE = "a number"  # where one goes: a JSON string that no page has
_TIME = "a time"  # the same, for one
_PLAIN = (1e-4, 1e16)  # from here, and below there, Python and msgspec write a positive float without an exponent


def _written(values: list[Any]) -> list[bytes]:
    """Each of them as JSON. One call for all, a value a line, takes a fifth of the time of Python's own formatting."""
    return _ENCODER.encode_lines(values).split(b"\n")[:-1]
