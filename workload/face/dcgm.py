"""`/dcgm/metrics`: what NVIDIA's dcgm-exporter would say of the virtual cards, under its names, labels and units.

No part of SGLang's face: a real exporter is a server of its own, one a node, on port 9400. Fields, types and help texts are those of
dcgm-exporter's default-counters.csv, ECC and NVLink being commented out there; the two spellings of the clock reasons are in no default
list, and DCGM 3.3 and later knows both. The model name says that the card is virtual.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

from fastapi import FastAPI, Response

from workload.config import ClusterConfig
from workload.device.catalogue import find
from workload.device.names import accelerator
from workload.device.roofline import Roofline
from workload.face.dcgm_sensors import Reading, Sensors
from workload.face.loads import SnapshotReader
from workload.wire import CardOrder

_PER_NODE = 8
_MIB = 1 << 20

_Field = tuple[str, str, str, Callable[[Reading], float]]
_FIELDS: tuple[_Field, ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda r: r.sm_clock),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", lambda r: r.mem_clock),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", lambda r: r.memory_temp),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda r: r.gpu_temp),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda r: r.power),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.", lambda r: r.replays),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", lambda r: r.utilization),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", lambda r: r.xid),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Total number of single-bit volatile ECC errors.", lambda r: r.single_bit),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors.", lambda r: r.double_bit),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "Total number of NVLink flow-control CRC errors.", lambda r: r.crc),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed", lambda r: r.remap_failed),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "Current clock throttle reasons (bitmask).", lambda r: r.reasons),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Current clock event reasons (bitmask).", lambda r: r.reasons),
)

# Of NVIDIA's XID catalogue, as dcgm-exporter labels them
_XIDS = {
    0: "No Error",
    48: "Double Bit ECC Error",
    63: "Row remapping event",
    64: "Row remapping failure",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
}


class Exporter:
    """The cards' sensors, and the page that shows them."""

    def __init__(self, config: ClusterConfig, now: float) -> None:
        card, roofline = find(config.card), Roofline.of(config)
        self._labels = [_labels(config, rank) for rank in range(config.ranks)]
        self._sensors = [Sensors(card, rank, now) for rank in range(config.ranks)]
        used = roofline.model.weights + roofline.kv_read(config.limits.kv_tokens)  # an engine takes its whole KV pool when it starts
        self._memory = (
            ("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", int((card.memory - used) / _MIB)),
            ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", int(used / _MIB)),
        )

    def order(self, order: CardOrder, now: float) -> None:
        self._sensors[order.rank].order(order, now)

    def page(self, now: float, busy: Sequence[bool]) -> str:
        """The exposition at `now` (monotonic seconds); `busy[r]`: rank r has requests."""
        readings = [sensors.read(now, busy=b) for sensors, b in zip(self._sensors, busy, strict=True)]
        lines: list[str] = []
        for name, kind, text, value in _FIELDS:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            for labels, reading in zip(self._labels, readings, strict=True):
                extra = (
                    f',err_code="{reading.xid}",err_msg="{_XIDS.get(reading.xid, "Unknown Error")}"' if name.endswith("XID_ERRORS") else ""
                )
                number = value(reading)
                lines.append(
                    f"{name}{{{labels}{extra}}} {number:.6f}" if isinstance(number, float) else f"{name}{{{labels}{extra}}} {number}"
                )
        for name, text, amount in self._memory:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", *(f"{name}{{{labels}}} {amount}" for labels in self._labels)]
        return "\n".join(lines) + "\n"


def mount(app: FastAPI, config: ClusterConfig, reader: SnapshotReader) -> Exporter:
    """Serves `/dcgm/metrics`, if the cards are virtual ones of NVIDIA's; else there is no such page. Returns where orders go."""
    exporter = Exporter(config, time.monotonic())
    if config.device == "virtual" and find(config.card).nvidia:

        @app.get("/dcgm/metrics", include_in_schema=False)
        async def metrics() -> Response:
            busy = [(load := reader.read(rank)) is not None and load.num_running_reqs > 0 for rank in range(config.ranks)]
            return Response(exporter.page(time.monotonic(), busy), media_type="text/plain; version=0.0.4; charset=utf-8")

    return exporter


def _labels(config: ClusterConfig, rank: int) -> str:
    gpu, node = rank % _PER_NODE, rank // _PER_NODE
    values = {
        "gpu": gpu,
        "UUID": f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'slowrank virtual card {config.seed} {rank}')}",
        "pci_bus_id": f"00000000:{0x10 * (gpu + 1):02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": accelerator(config),
        "Hostname": f"virtual-{node}",
        "DCGM_FI_DRIVER_VERSION": "virtual",
    }
    return ",".join(f'{name}="{value}"' for name, value in values.items())
