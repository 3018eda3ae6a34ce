"""The page that a dcgm-exporter would serve for the virtual cards."""

from __future__ import annotations

import statistics

import pytest
from prometheus_client.parser import text_string_to_metric_families

from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.control import Control
from workload.device.catalogue import CARDS
from workload.face.dcgm import Exporter
from workload.face.dcgm_sensors import Sensors
from workload.wire import DegradeLink, SlowMemory, Throttle, Xid

# dcgm-exporter 3.x on a real card, as public captures show it: these labels, in this order; err_code and err_msg on XIDs alone
LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
ALL_BUSY = [True] * 8


def samples(page: str) -> dict[tuple[str, str], float]:
    """By field and gpu, read with prometheus_client's own parser, which adds _total to the names of counters."""
    found = [s for family in text_string_to_metric_families(page) for s in family.samples]
    return {(s.name.removesuffix("_total"), s.labels["gpu"]): s.value for s in found}


@pytest.fixture
def exporter():
    return Exporter(ClusterConfig(), now=100.0)


def test_a_healthy_page_has_every_card_with_the_exporters_labels(exporter):
    """Eight cards, the labels of a real exporter, and a model name that says virtual."""
    page = exporter.page(101.0, ALL_BUSY)
    families = list(text_string_to_metric_families(page))
    assert len(families) == 16
    for family in families:
        assert [s.labels["gpu"] for s in family.samples] == [str(g) for g in range(8)]
        for s in family.samples:
            extra = ("err_code", "err_msg") if s.name == "DCGM_FI_DEV_XID_ERRORS" else ()
            assert tuple(s.labels) == LABELS + extra
            assert s.labels["modelName"] == "NVIDIA H20-3e (virtual)"
    assert len({s.labels["UUID"] for s in families[0].samples}) == 8
    assert "# TYPE DCGM_FI_DEV_XID_ERRORS gauge" in page
    assert "# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter" in page
    assert 'err_code="0",err_msg="No Error"} 0' in page


def test_a_healthy_card_reads_as_its_data_sheet(exporter):
    """Full clocks, no reason, no error; 84 GB of weights and 950,016 tokens of KV at 44,928 bytes in MiB."""
    got = samples(exporter.page(101.0, ALL_BUSY))
    assert got["DCGM_FI_DEV_SM_CLOCK", "3"] == 1980
    assert got["DCGM_FI_DEV_MEM_CLOCK", "3"] == 3201
    for field in ("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS", "XID_ERRORS", "ECC_DBE_VOL_TOTAL", "ROW_REMAP_FAILURE"):
        assert got[f"DCGM_FI_DEV_{field}", "3"] == 0
    used = (84e9 + 950_016 * 44_928) / 2**20
    assert got["DCGM_FI_DEV_FB_USED", "3"] == pytest.approx(used, abs=1)
    assert got["DCGM_FI_DEV_FB_FREE", "3"] == pytest.approx(141e9 / 2**20 - used, abs=2)


def test_a_hot_card_is_hot_slow_and_says_why(exporter):
    """Half the clock for heat, 0x40 under both names of the field, hotter than its peers and drawing less; the others as before."""
    before = samples(exporter.page(101.0, ALL_BUSY))
    exporter.order(Throttle(3, 0.5, 0x40), 102.0)
    now = samples(exporter.page(103.0, ALL_BUSY))
    assert now["DCGM_FI_DEV_SM_CLOCK", "3"] == 990
    assert now["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "3"] == now["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "3"] == 64
    assert now["DCGM_FI_DEV_GPU_TEMP", "3"] > max(now["DCGM_FI_DEV_GPU_TEMP", str(g)] for g in range(8) if g != 3) + 20
    assert now["DCGM_FI_DEV_POWER_USAGE", "3"] < before["DCGM_FI_DEV_POWER_USAGE", "3"]
    assert {k: v for k, v in now.items() if k[1] != "3"} == {k: v for k, v in before.items() if k[1] != "3"}


def test_a_capped_card_draws_its_limit(exporter):
    """The power cap (0x4) is reached at the limit, and that is no sign of heat."""
    exporter.order(Throttle(2, 0.9, 0x4), 102.0)
    now = samples(exporter.page(103.0, ALL_BUSY))
    assert now["DCGM_FI_DEV_POWER_USAGE", "2"] == CARDS["H20-3e"].watts
    assert now["DCGM_FI_DEV_GPU_TEMP", "2"] < 70


def test_counters_grow_at_their_rate_and_stay(exporter):
    """3 corrected errors a second for 10 s, 2 checksum errors for 5, one replay every other second: and then no more."""
    exporter.order(SlowMemory(1, 0.8, 3.0), 110.0)
    exporter.order(DegradeLink(1, 0.5, 2.0, 0.5), 115.0)
    exporter.order(SlowMemory(1, 1.0, 0.0), 120.0)
    exporter.order(DegradeLink(1, 1.0, 0.0, 0.0), 120.0)
    now = samples(exporter.page(500.0, ALL_BUSY))
    assert now["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "1"] == 30
    assert now["DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "1"] == 10
    assert now["DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "1"] == 2
    assert now["DCGM_FI_DEV_MEM_CLOCK", "1"] == 3201


def test_slow_memory_shows_in_its_clock(exporter):
    """At 0.8 of 3201 MHz."""
    exporter.order(SlowMemory(1, 0.8, 0.0), 110.0)
    assert samples(exporter.page(111.0, ALL_BUSY))["DCGM_FI_DEV_MEM_CLOCK", "1"] == 2561


def test_xids_leave_the_marks_that_they_mean(exporter):
    """48 is a double-bit error, 64 a failed remap; the gauge shows the last one with its text, and 0 after a reload."""
    for code in (48, 64):
        exporter.order(Xid(5, code), 110.0)
    page = exporter.page(111.0, ALL_BUSY)
    got = samples(page)
    assert got["DCGM_FI_DEV_XID_ERRORS", "5"] == 64
    assert (got["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "5"], got["DCGM_FI_DEV_ROW_REMAP_FAILURE", "5"]) == (1, 1)
    assert 'err_code="64",err_msg="Row remapping failure"} 64' in page
    exporter.order(Xid(5, 0), 112.0)
    assert samples(exporter.page(113.0, ALL_BUSY))["DCGM_FI_DEV_XID_ERRORS", "5"] == 0


def test_an_idle_card_says_that_it_is_idle():
    """Bit 0x1, a low clock, little power: a low clock without work is no fault, whatever throttles the card when it works."""
    sensors = Sensors(CARDS["H20-3e"], 0, now=0.0)
    sensors.order(Throttle(0, 0.5, 0x40), 1.0)
    idle, busy = sensors.read(2.0, busy=False), sensors.read(3.0, busy=True)
    assert (idle.reasons, idle.utilization) == (1, 0)
    assert idle.sm_clock < busy.sm_clock
    assert idle.power < busy.power
    assert idle.gpu_temp < 50


def test_a_second_node_starts_at_gpu_0_again():
    """Eight cards a node: rank 9 is gpu 1 of the second host."""
    page = Exporter(ClusterConfig(ranks=16), now=0.0).page(1.0, [True] * 16)
    (family, *_) = text_string_to_metric_families(page)
    assert (family.samples[9].labels["gpu"], family.samples[9].labels["Hostname"]) == ("1", "virtual-1")


@pytest.mark.cluster
def test_a_slow_card_lengthens_everybodys_step_and_its_page_tells(probe):
    """Half its memory's speed on one card: no scheduler waits more, all ranks step at the slow card's pace, and DCGM names it."""
    with Cluster(ClusterConfig(ranks=4)) as cluster:
        reader = probe(cluster)
        healthy = reader.window(2, settle=1.5)
        control = Control(cluster.config, cluster._running())
        control.slow_memory(2, 0.5)
        slow = reader.window(2, settle=1.2)
        got = samples(reader.get("/dcgm/metrics").text)
        control.slow_memory(2, 1.0)
        well = reader.window(1.5, settle=0.8)
    # reading is some 30 of 38 ms, and takes twice as long on one card
    assert 1.5 < slow.step_time / healthy.step_time < 2.2
    assert max(slow.waits) < 0.25 * slow.step_time
    assert well.step_time < 1.2 * healthy.step_time
    clocks = [got["DCGM_FI_DEV_MEM_CLOCK", str(g)] for g in range(4)]
    assert clocks.index(min(clocks)) == 2
    assert clocks[2] == pytest.approx(statistics.median(clocks) / 2, abs=1)
