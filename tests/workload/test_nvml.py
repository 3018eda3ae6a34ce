"""The page of real cards, on a stand-in of nvidia-ml-py: nothing here has a GPU."""

from __future__ import annotations

import asyncio
import logging
import sys
from types import SimpleNamespace

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from workload.config import ClusterConfig
from workload.device import cuda
from workload.face import dcgm
from workload.face.dcgm_fields import FIELDS
from workload.face.nvml import open_cards


class NVMLError(Exception):
    """nvidia-ml-py's, which is made from a number."""


class Driver:
    """What nvidia-ml-py's functions give for two H200, the second of which is hot; `fails` are names of functions that do not work."""

    NVMLError = NVMLError

    def __init__(self, *fails: str) -> None:
        self.fails = set(fails)

    def __getattribute__(self, name: str):
        if name.startswith("nvml") and name in self.fails:

            def fail(*_):
                raise NVMLError("Not Supported")

            return fail
        return super().__getattribute__(name)

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "570.124.06"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        return ["GPU-aaaa", "GPU-bbbb"].index(uuid)

    def nvmlDeviceGetUUID(self, card: int) -> str:  # noqa: N802
        return ["GPU-aaaa", "GPU-bbbb"][card]

    def nvmlDeviceGetPciInfo(self, card: int):  # noqa: N802
        return SimpleNamespace(busId=f"00000000:{card + 1}B:00.0")

    def nvmlDeviceGetName(self, card: int) -> str:  # noqa: N802
        return 'NVIDIA "H200"'

    def nvmlDeviceGetClockInfo(self, card: int, kind: int) -> int:  # noqa: N802
        return {1: [1980, 1200], 2: [3201, 3201]}[kind][card]

    def nvmlDeviceGetTemperature(self, card: int, sensor: int) -> int:  # noqa: N802
        assert sensor == 0
        return [55, 90][card]

    def nvmlDeviceGetFieldValues(self, card: int, fields: list[int]):  # noqa: N802
        assert fields == [82]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=[66, 97][card]))]

    def nvmlDeviceGetPowerUsage(self, card: int) -> int:  # noqa: N802
        return [431_250, 388_000][card]

    def nvmlDeviceGetUtilizationRates(self, card: int):  # noqa: N802
        return SimpleNamespace(gpu=100, memory=60)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: int) -> int:  # noqa: N802
        return [0, 0x40][card]


def served(monkeypatch: pytest.MonkeyPatch, driver: object) -> tuple[int, str]:
    """Status and body of the page of a cluster of two ranks on two cards."""
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr(dcgm, "card_uuids", lambda ranks: ["aaaa", "bbbb"][:ranks])
    monkeypatch.setattr(dcgm, "accelerator", lambda config: "NVIDIA H200")
    app = FastAPI()
    dcgm.mount(app, ClusterConfig(ranks=2, device="cuda"), SimpleNamespace())  # type: ignore[arg-type]  # nobody asks it

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://cards") as client:
            return await client.get("/dcgm/metrics")

    answer = asyncio.run(ask())
    return answer.status_code, answer.text


def samples(page: str) -> dict[tuple[str, str], float]:
    return {(s.name, s.labels["gpu"]): s.value for family in text_string_to_metric_families(page) for s in family.samples}


def test_the_page_says_what_the_driver_says(monkeypatch):
    """Clocks, temperatures, watts and reasons of each card, in DCGM's units and under both names of the reasons."""
    status, page = served(monkeypatch, Driver())
    assert status == 200
    got = samples(page)
    for name, first, second in (
        ("SM_CLOCK", 1980, 1200),
        ("MEM_CLOCK", 3201, 3201),
        ("GPU_TEMP", 55, 90),
        ("MEMORY_TEMP", 66, 97),
        ("POWER_USAGE", 431.25, 388.0),
        ("GPU_UTIL", 100, 100),
        ("CLOCK_THROTTLE_REASONS", 0, 0x40),
        ("CLOCKS_EVENT_REASONS", 0, 0x40),
    ):
        assert (got[f"DCGM_FI_DEV_{name}", "0"], got[f"DCGM_FI_DEV_{name}", "1"]) == (first, second), name
    assert len(got) == 16


def test_labels_are_the_drivers_and_escaped(monkeypatch):
    """Those of a real exporter, in its order; a quote in a name does not end the value."""
    _, page = served(monkeypatch, Driver())
    for family in text_string_to_metric_families(page):
        assert family.documentation == FIELDS[family.name][1]
        for sample in family.samples:
            assert tuple(sample.labels) == ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
            assert sample.labels["modelName"] == 'NVIDIA "H200"'
            assert sample.labels["UUID"] == ["GPU-aaaa", "GPU-bbbb"][int(sample.labels["gpu"])]


def test_what_a_card_does_not_tell_is_left_out_and_said_once(monkeypatch, caplog):
    """No memory sensor: no such line, neither zero nor stale, and one warning a card for two scrapes."""
    with caplog.at_level(logging.WARNING):
        cards = open_with(monkeypatch, Driver("nvmlDeviceGetFieldValues"))
        first, second = cards.page(), cards.page()
    assert first == second
    assert "MEMORY_TEMP" not in first
    assert samples(first)["DCGM_FI_DEV_GPU_TEMP", "1"] == 90
    assert [r.getMessage() for r in caplog.records] == [
        f"card {card}: NVML gives no DCGM_FI_DEV_MEMORY_TEMP (Not Supported); the page leaves it out" for card in (0, 1)
    ]


def test_a_sensor_that_answers_with_an_error_is_no_zero(monkeypatch):
    """nvidia-ml-py gives a field value even then, with NVML's return code in it."""
    driver = Driver()
    answer = SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(uiVal=0))
    monkeypatch.setattr(driver, "nvmlDeviceGetFieldValues", lambda card, fields: [answer])
    assert "MEMORY_TEMP" not in open_with(monkeypatch, driver).page()


@pytest.mark.parametrize(
    ("driver", "says"),
    [
        (None, "nvidia-ml-py is not installed; pip install 'slowrank[gpu]'"),
        (Driver("nvmlInit"), "NVML says Not Supported; see whether nvidia-smi works here"),
        (Driver("nvmlDeviceGetHandleByUUID"), "NVML says Not Supported"),
    ],
)
def test_without_nvml_there_is_no_page_and_the_log_says_why(monkeypatch, caplog, driver, says):
    """The cluster runs all the same. None in sys.modules is Python's way to say that a module cannot be imported."""
    with caplog.at_level(logging.WARNING):
        status, _ = served(monkeypatch, driver)
    assert status == 404
    assert says in caplog.text


def test_the_cards_are_those_that_torch_uses(monkeypatch):
    """One for each rank, or the one that all share: CUDA's order of cards is not NVML's, so they are named by UUID."""

    class Torch:
        class cuda:  # noqa: N801  # torch's own name
            @staticmethod
            def device_count() -> int:
                return 2

            @staticmethod
            def get_device_properties(card: int):
                return SimpleNamespace(uuid=["aaaa", "bbbb"][card])

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert cuda.card_uuids(2) == ["aaaa", "bbbb"]
    assert cuda.card_uuids(8) == ["aaaa"]


def open_with(monkeypatch: pytest.MonkeyPatch, driver: object):
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    cards = open_cards(["aaaa", "bbbb"])
    assert cards is not None
    return cards
