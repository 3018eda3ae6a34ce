"""What this node's NVIDIA driver says of its cards: `Looker` makes a page of it (IO), `read` reads such a page (pure).

For a node without dcgm-exporter. Needs nvidia-ml-py (`slowrank[nvml]`), imported when it is asked for, and no more rights than
nvidia-smi. What a card does not support is left out of the page; what this user may not see is said on it. NVML tells no past XID: only
DCGM and the kernel's log do. Beside the signals it tells which process computes on which card, the surest join of ranks to cards.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from collector import signals
from collector.engines.limits import few
from collector.errors import ConfigError, SourceError
from collector.hardware import cards
from collector.hardware.cards import Card, Look
from collector.jsonpage import decode
from collector.model import Page, Problem

FORMAT = "slowrank.nvml/1"

_INSTALL = "install the driver's Python bindings: pip install 'slowrank[nvml]'"
_MOST_LINKS = 18  # NVLinks of a Hopper or Blackwell card
_MEMORY_TEMP = 82  # NVML_FI_DEV_MEMORY_TEMP
_LINK_ERRORS = range(4)  # nvmlNvLinkErrorCounter: replays, recoveries, CRC of flits, CRC of data


class _Gpu(msgspec.Struct, omit_defaults=True):
    index: int
    uuid: str = ""
    bus: str = ""
    pids: list[int] = []
    reasons: int | None = None
    utilization: float | None = None
    values: dict[str, float] = {}  # by canonical signal


class _Body(msgspec.Struct):
    format: str
    cards: list[_Gpu] = []
    refused: dict[str, str] = {}  # what was asked for in vain -> the driver's words


class Looker:
    """Looks at this node's cards. Raises ConfigError, with what to install or where to run, when there is no driver to ask."""

    def __init__(self, module: Any = None) -> None:
        try:
            self._nvml = importlib.import_module("pynvml") if module is None else module
        except ImportError:
            raise ConfigError(f"--nvml: the module pynvml is not installed; {_INSTALL}") from None
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise ConfigError(f"--nvml: the driver does not answer ({_words(error)}); run on a node with NVIDIA cards") from None

    def look(self) -> bytes:
        """The body of one page. Raises SourceError when the driver has stopped answering altogether."""
        nvml = self._nvml
        refused: dict[str, str] = {}
        found: list[_Gpu] = []
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise SourceError(f"the driver does not answer any more ({_words(error)}); look at dmesg for an XID") from None
        for index in range(min(count, cards.MAX_CARDS)):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
            except nvml.NVMLError as error:  # a card that fell off the bus
                refused[f"GPU {index}"] = _words(error)
                continue
            found.append(self._card(index, handle, refused))
        return msgspec.json.encode(_Body(FORMAT, found, refused))

    def _card(self, index: int, handle: Any, refused: dict[str, str]) -> _Gpu:
        nvml = self._nvml

        def ask(what: str, call: Callable[[], Any]) -> Any:
            """The driver's answer; None where the card has no such thing, or this binding or driver does not know it."""
            try:
                return call()
            except AttributeError:
                return None
            except nvml.NVMLError as error:
                if getattr(error, "value", None) == nvml.NVML_ERROR_NO_PERMISSION:
                    refused[f"{what} of GPU {index}"] = _words(error)
                return None

        def reasons() -> Any:
            newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)  # the same question, renamed
            return (newer or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle)

        def memory_temperature() -> Any:
            (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [_MEMORY_TEMP])
            return answer.value.uiVal if answer.nvmlReturn == 0 else None

        remapped = ask("remapped rows", lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        links = [
            ask("NVLink errors", partial(self._link_errors, handle, link, kind)) for link in range(_MOST_LINKS) for kind in _LINK_ERRORS
        ]
        counted = [number for number in links if number is not None]
        power = ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        clock = ask("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        memory_clock = ask("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
        values = {
            signals.CARD_CLOCK: None if clock is None else clock * cards.MHZ,
            signals.CARD_MEMORY_CLOCK: None if memory_clock is None else memory_clock * cards.MHZ,
            signals.CARD_TEMPERATURE: ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            signals.CARD_MEMORY_TEMPERATURE: ask("memory temperature", memory_temperature),
            signals.CARD_POWER: None if power is None else power / 1000,  # from milliwatts
            signals.CARD_CORRECTED: ask("ECC errors", lambda: self._ecc(handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
            signals.CARD_UNCORRECTED: ask("ECC errors", lambda: self._ecc(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)),
            signals.CARD_REMAPPED: None if remapped is None else remapped[1],
            signals.CARD_REMAP_FAILED: None if remapped is None else remapped[3],
            signals.CARD_LINK_ERRORS: sum(counted) if counted else None,
            signals.CARD_PCIE_REPLAYS: ask("PCIe replays", lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle)),
            signals.CARD_PCIE_WIDTH: ask("PCIe width", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        }
        pci = ask("PCI address", lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        running = ask("processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return _Gpu(
            index=index,
            uuid=ask("UUID", lambda: _text(nvml.nvmlDeviceGetUUID(handle))) or "",
            bus=cards.bus_address(pci or ""),
            pids=[int(process.pid) for process in running or ()],
            reasons=ask("clock reasons", reasons),
            utilization=ask("utilization", lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
            values={name: float(value) for name, value in values.items() if value is not None},
        )

    def _link_errors(self, handle: Any, link: int, kind: int) -> Any:
        return self._nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, kind)

    def _ecc(self, handle: Any, kind: int) -> Any:
        return self._nvml.nvmlDeviceGetTotalEccErrors(handle, kind, self._nvml.NVML_VOLATILE_ECC)


def read(page: Page) -> Look:
    """The cards of one page of a Looker. Raises SourceError for another body."""
    found = decode(page.body, _Body, page.node)
    if found.format != FORMAT:
        raise SourceError(
            f"{page.node}: {found.format[:60]!r} is not the format that is read here ({FORMAT}); use the slowrank that wrote it"
        )
    problems = [
        Problem(page.node, f"{what}: the driver says {why!r}", "run as a user who may ask it") for what, why in found.refused.items()
    ]
    if not found.cards:
        problems.append(Problem(page.node, "the driver shows no card", "give this container its cards, or run on the node itself"))
    return Look(tuple(_read(page.node, gpu) for gpu in found.cards[: cards.MAX_CARDS] if gpu.index >= 0), few(problems))


def _read(host: str, gpu: _Gpu) -> Card:
    values = {name: value for name, value in gpu.values.items() if name in signals.CATALOGUE and value >= 0}
    if gpu.reasons is not None:
        values |= cards.of_reasons(gpu.reasons)
    if cards.idle(gpu.reasons, gpu.utilization):
        values.pop(signals.CARD_CLOCK, None)
    return Card(host, gpu.index, gpu.uuid, gpu.bus, tuple(gpu.pids), values)


def _text(answer: Any) -> str:
    """Older bindings answer in bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)


def _words(error: Exception) -> str:
    return str(error)[:120]
