"""`/dcgm/metrics`: what NVIDIA's dcgm-exporter would say of the cards, under its names, labels and units.

No part of SGLang's face: a real exporter is a server of its own, one a node, on port 9400. Of virtual cards it says what their sensors
would, and the model name says that they are virtual; of real ones what NVML does, see `workload.face.nvml`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

from fastapi import FastAPI, Response

from workload.config import ClusterConfig
from workload.device.catalogue import find
from workload.device.cuda import card_uuids
from workload.device.names import accelerator
from workload.device.roofline import Roofline
from workload.face.dcgm_fields import header, line
from workload.face.dcgm_sensors import Reading, Sensors
from workload.face.loads import SnapshotReader
from workload.face.nvml import open_cards
from workload.wire import CardOrder

_PER_NODE = 8
_MIB = 1 << 20
_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_VALUES: dict[str, Callable[[Reading], float]] = {
    "DCGM_FI_DEV_SM_CLOCK": lambda r: r.sm_clock,
    "DCGM_FI_DEV_MEM_CLOCK": lambda r: r.mem_clock,
    "DCGM_FI_DEV_MEMORY_TEMP": lambda r: r.memory_temp,
    "DCGM_FI_DEV_GPU_TEMP": lambda r: r.gpu_temp,
    "DCGM_FI_DEV_POWER_USAGE": lambda r: r.power,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": lambda r: r.replays,
    "DCGM_FI_DEV_GPU_UTIL": lambda r: r.utilization,
    "DCGM_FI_DEV_XID_ERRORS": lambda r: r.xid,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": lambda r: r.single_bit,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": lambda r: r.double_bit,
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": lambda r: r.crc,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": lambda r: r.remap_failed,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": lambda r: r.reasons,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": lambda r: r.reasons,
}

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
        card = find(config.card)
        roofline = Roofline.on(card)
        self._labels = [_labels(config, rank) for rank in range(config.ranks)]
        self._sensors = [Sensors(card, rank, now) for rank in range(config.ranks)]
        used = roofline.model.weights + roofline.kv_read(config.limits.kv_tokens)  # an engine takes its whole KV pool when it starts
        self._memory = (
            ("DCGM_FI_DEV_FB_FREE", int((card.memory - used) / _MIB)),
            ("DCGM_FI_DEV_FB_USED", int(used / _MIB)),
        )

    def order(self, order: CardOrder, now: float) -> None:
        self._sensors[order.rank].order(order, now)

    def page(self, now: float, busy: Sequence[bool]) -> str:
        """The exposition at `now` (monotonic seconds); `busy[r]`: rank r has requests."""
        readings = [sensors.read(now, busy=b) for sensors, b in zip(self._sensors, busy, strict=True)]
        lines: list[str] = []
        for name, value in _VALUES.items():
            lines += header(name)
            for labels, reading in zip(self._labels, readings, strict=True):
                extra = (
                    f',err_code="{reading.xid}",err_msg="{_XIDS.get(reading.xid, "Unknown Error")}"' if name.endswith("XID_ERRORS") else ""
                )
                lines.append(line(name, labels + extra, value(reading)))
        for name, amount in self._memory:
            lines += [*header(name), *(line(name, labels, amount) for labels in self._labels)]
        return "\n".join(lines) + "\n"


def mount(app: FastAPI, config: ClusterConfig, reader: SnapshotReader) -> Exporter:
    """Serves `/dcgm/metrics`, if the cards are virtual ones of NVIDIA's or real ones; else there is no such page.

    Returns where orders go: real cards obey none.
    """
    exporter = Exporter(config, time.monotonic())
    if config.device == "virtual" and find(config.card).nvidia:

        @app.get("/dcgm/metrics", include_in_schema=False)
        async def metrics() -> Response:
            busy = [(load := reader.read(rank)) is not None and load.num_running_reqs > 0 for rank in range(config.ranks)]
            return Response(exporter.page(time.monotonic(), busy), media_type=_TYPE)

    elif config.device == "cuda" and (cards := open_cards(card_uuids(config.ranks))) is not None:

        @app.get("/dcgm/metrics", include_in_schema=False)
        def real() -> Response:  # in a thread of its own: a driver may take its time
            return Response(cards.page(), media_type=_TYPE)

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
