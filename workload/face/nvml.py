"""What the driver says of the real cards, by NVML, as lines of the page that a dcgm-exporter would serve.

A value that a card or a driver does not give is not on the page, and a warning says once why; without NVML there is no page. NVML keeps
no last XID and sums no NVLink errors, which a real exporter has: they are not here. Written against nvidia-ml-py's own declarations and
run on a stand-in of it; it has not been run on a GPU yet.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from workload.face.dcgm_fields import FIELDS, header, line

_log = logging.getLogger(__name__)

# nvidia-ml-py's numbers (its NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_FI_DEV_MEMORY_TEMP), which are NVML's own ABI
_GPU_SENSOR, _SM, _MEMORY, _MEMORY_TEMP = 0, 1, 2, 82
_REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")  # one mask under its older and its newer name


def _memory_temperature(nvml: Any, card: Any) -> int:
    """Celsius. Only cards with HBM have that sensor."""
    (field,) = nvml.nvmlDeviceGetFieldValues(card, [_MEMORY_TEMP])
    if field.nvmlReturn:
        raise nvml.NVMLError(field.nvmlReturn)
    return int(field.value.uiVal)


_Read = Callable[[Any, Any], float]
_READS: dict[str, _Read] = {
    "DCGM_FI_DEV_SM_CLOCK": lambda nvml, card: int(nvml.nvmlDeviceGetClockInfo(card, _SM)),
    "DCGM_FI_DEV_MEM_CLOCK": lambda nvml, card: int(nvml.nvmlDeviceGetClockInfo(card, _MEMORY)),
    "DCGM_FI_DEV_MEMORY_TEMP": _memory_temperature,
    "DCGM_FI_DEV_GPU_TEMP": lambda nvml, card: int(nvml.nvmlDeviceGetTemperature(card, _GPU_SENSOR)),
    "DCGM_FI_DEV_POWER_USAGE": lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card) / 1000,  # milliwatts
    "DCGM_FI_DEV_GPU_UTIL": lambda nvml, card: int(nvml.nvmlDeviceGetUtilizationRates(card).gpu),
    **dict.fromkeys(_REASONS, lambda nvml, card: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card))),
}


class RealCards:
    """The page of those of this machine's cards. `uuids` are as torch gives them, in the order of its devices."""

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}") for uuid in uuids]
        driver = nvml.nvmlSystemGetDriverVersion()
        self._labels = [self._describe(place, handle, driver) for place, handle in enumerate(self._handles)]
        self._silent: set[tuple[str, int]] = set()

    def page(self) -> str:
        """The exposition; now is when it is asked."""
        lines: list[str] = []
        for name in FIELDS:
            if (read := _READS.get(name)) is None:
                continue
            found = [
                line(name, labels, value)
                for place, labels in enumerate(self._labels)
                if (value := self._read(name, read, place)) is not None
            ]
            if found:
                lines += [*header(name), *found]
        return "\n".join(lines) + "\n" if lines else ""

    def _read(self, name: str, read: _Read, place: int) -> float | None:
        """None where NVML does not say; the first time, why."""
        try:
            return read(self._nvml, self._handles[place])
        except self._nvml.NVMLError as error:
            if (name, place) not in self._silent:
                self._silent.add((name, place))
                _log.warning("card %d: NVML gives no %s (%s); the page leaves it out", place, name, error)
            return None

    def _describe(self, place: int, handle: Any, driver: str) -> str:
        nvml = self._nvml
        values = {
            "gpu": place,
            "UUID": nvml.nvmlDeviceGetUUID(handle),
            "pci_bus_id": nvml.nvmlDeviceGetPciInfo(handle).busId,
            "device": f"nvidia{place}",
            "modelName": nvml.nvmlDeviceGetName(handle),
            "Hostname": socket.gethostname(),
            "DCGM_FI_DRIVER_VERSION": driver,
        }
        return ",".join(f'{name}="{_escape(str(value))}"' for name, value in values.items())


def open_cards(uuids: Sequence[str]) -> RealCards | None:
    """The cards through NVML; None, with a warning that says why, where that cannot be had."""
    try:
        import pynvml
    except ImportError:
        _log.warning("no page of the cards: nvidia-ml-py is not installed; pip install 'slowrank[gpu]'")
        return None
    try:
        pynvml.nvmlInit()
        return RealCards(pynvml, uuids)
    except pynvml.NVMLError as error:
        _log.warning("no page of the cards: NVML says %s; see whether nvidia-smi works here", error)
        return None


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
