"""What the driver says, by a stand-in with its functions, constants and errors."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from collector import signals
from collector.errors import ConfigError, SourceError
from collector.hardware import nvml
from collector.hardware.cards import Look
from collector.model import Page, Source


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__({3: "Not Supported", 4: "Insufficient Permissions", 9: "Driver Not Loaded", 15: "GPU is lost"}[value])
        self.value = value


class Driver:
    """As much of pynvml as is asked for; `fails`: function -> error code."""

    NVMLError = NVMLError
    NVML_ERROR_NO_PERMISSION = 4
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0

    def __init__(self, **fails: int) -> None:
        self.fails = fails

    def __getattr__(self, name: str) -> Any:
        if name in self.fails:
            return lambda *_: self._raise(self.fails[name])
        answers: dict[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda k: k,
            "nvmlDeviceGetUUID": lambda h: f"GPU-{h}".encode(),
            "nvmlDeviceGetPciInfo": lambda h: SimpleNamespace(busId=f"0000000{h}:1B:00.0"),
            "nvmlDeviceGetClockInfo": lambda h, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetTemperature": lambda h, kind: 55,
            "nvmlDeviceGetFieldValues": lambda h, ids: [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=66))],
            "nvmlDeviceGetPowerUsage": lambda h: 412_500,
            "nvmlDeviceGetTotalEccErrors": lambda h, kind, counter: 7 + kind,
            "nvmlDeviceGetRemappedRows": lambda h: (1, 2, 0, 1),
            "nvmlDeviceGetNvLinkErrorCounter": lambda h, link, kind: 1 if link < 2 else self._raise(3),
            "nvmlDeviceGetPcieReplayCounter": lambda h: 3,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 16,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: [0x40, 0x1][h],
            "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=[99, 0][h]),
            "nvmlDeviceGetComputeRunningProcesses": lambda h: [SimpleNamespace(pid=1000 + h)],
        }
        if name not in answers:
            raise AttributeError(name)  # an older binding
        return answers[name]

    @staticmethod
    def _raise(value: int) -> Any:
        raise NVMLError(value)


def look(driver: Driver) -> Look:
    return nvml.read(Page("e", "localhost", Source.NVML, 1000.0, 0.0, 200, "", nvml.Looker(driver).look()))


def test_the_drivers_answers_become_signals() -> None:
    """MHz to Hz, milliwatts to watts, the reasons under their older name, NVLink errors over the links there are, processes."""
    found = look(Driver())
    assert found.problems == ()
    first, second = found.cards
    assert (first.index, first.uuid, first.bus, first.pids) == (0, "GPU-0", "0000:1b:00.0", (1000,))
    assert first.values == {
        signals.CARD_CLOCK: 1980e6,
        signals.CARD_MEMORY_CLOCK: 3201e6,
        signals.CARD_TEMPERATURE: 55.0,
        signals.CARD_MEMORY_TEMPERATURE: 66.0,
        signals.CARD_POWER: 412.5,
        signals.CARD_CORRECTED: 7.0,
        signals.CARD_UNCORRECTED: 8.0,
        signals.CARD_REMAPPED: 2.0,
        signals.CARD_REMAP_FAILED: 1.0,
        signals.CARD_LINK_ERRORS: 8.0,  # two links, four counters
        signals.CARD_PCIE_REPLAYS: 3.0,
        signals.CARD_PCIE_WIDTH: 16.0,
        signals.CARD_THERMAL: 1.0,
        signals.CARD_BRAKE: 0.0,
        signals.CARD_SLOWDOWN: 0.0,
        signals.CARD_CAPPED: 0.0,
    }
    assert signals.CARD_CLOCK not in second.values  # idle, by its reasons


def test_what_a_card_does_not_have_is_absent_and_no_problem() -> None:
    """No ECC on a workstation card: two signals fewer."""
    found = look(Driver(nvmlDeviceGetTotalEccErrors=3))
    assert found.problems == ()
    assert signals.CARD_CORRECTED not in found.cards[0].values
    assert signals.CARD_PCIE_REPLAYS in found.cards[0].values


def test_what_this_user_may_not_see_is_said() -> None:
    """A partial answer that names what is missing and whose word it is."""
    found = look(Driver(nvmlDeviceGetComputeRunningProcesses=4))
    assert found.cards[0].pids == ()
    assert "processes of GPU 0: the driver says 'Insufficient Permissions'" in str(found.problems[0])


def test_a_card_that_fell_off_the_bus_is_said() -> None:
    """The others are read on, and a lost one is no card without errors."""
    found = look(Driver(nvmlDeviceGetHandleByIndex=15))
    assert found.cards == ()
    assert "GPU 0: the driver says 'GPU is lost'" in str(found.problems[0])


def test_a_driver_without_a_card_is_said() -> None:
    """A container that was given none: nothing is read, and what to do is said."""
    found = nvml.read(Page("e", "localhost", Source.NVML, 1000.0, 0.0, 200, "", json.dumps({"format": nvml.FORMAT, "cards": []}).encode()))
    assert found.cards == ()
    assert "the driver shows no card; give this container its cards" in str(found.problems[0])


def test_no_driver_and_no_module_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is to be installed, the other to be run elsewhere; a driver that stops answering later is a failed page."""
    with pytest.raises(ConfigError, match=r"Driver Not Loaded.*node with NVIDIA cards"):
        nvml.Looker(Driver(nvmlInit=9))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ConfigError, match=r"slowrank\[nvml\]"):
        nvml.Looker()
    with pytest.raises(SourceError, match="dmesg"):
        nvml.Looker(Driver(nvmlDeviceGetCount=9)).look()


@pytest.mark.parametrize("body", [b"", b"{}", b'{"format": "slowrank.nvml/2"}', json.dumps({"format": nvml.FORMAT, "cards": [3]}).encode()])
def test_another_body_is_refused(body: bytes) -> None:
    """With what was seen."""
    with pytest.raises(SourceError):
        nvml.read(Page("e", "localhost", Source.NVML, 1000.0, 0.0, 200, "", body))
