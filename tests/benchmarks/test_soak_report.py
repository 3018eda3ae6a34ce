"""The figures of a soak: each incident beside the fault that it is of, what nothing explains by itself, and lateness from the page."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest

from benchmarks.soak import report
from benchmarks.soak.play import Acted, _spread
from benchmarks.soak.sidecar import Told
from collector import exported
from collector.exporter import Distribution, Exporter, Sample, written


def moment(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def incident(name, opened, confirmed=None, cause="slow_rank", ranks=(1,)):
    times = {"opened": moment(opened), "confirmed": confirmed and moment(confirmed), "resolved": None}
    return {"id": name, "cause": cause, "ranks": list(ranks), "returns": 0, "state": "confirmed", **times}


def test_each_incident_is_told_beside_its_fault(capsys):
    """Two faults 60 s apart: the second one's incident is not counted to the first, and what no fault explains is told apart."""
    acted = [Acted("slow_rank", 1, 1000.0, 1100.0), Acted("kv_pressure", 2, 1160.0, 1260.0)]
    found = [
        incident("c", 1500.0, cause="stuck_rank"),
        incident("b", 1175.0, cause="kv_pressure", ranks=(2,)),
        incident("a", 1020.0, 1050.0),
    ]
    told = [Told(1051.0, "firing", "x", "a"), Told(1900.0, "resolved", "x", "a"), Told(1501.0, "firing", "x", "c")]
    report.faults(acted, found, told)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "faults 2, incidents 3, of which 1 confirmed",
        "  slow_rank on 1 for 100 s: 1 incident of that name",
        "    slow_rank on [1]: opened after 20 s, confirmed after 50 s; told 1 firing, 1 resolved; 0 returns",
        "  kv_pressure on 2 for 100 s: 1 incident of that name",
        "    kv_pressure on [2]: opened after 15 s; told 0 firing, 0 resolved; 0 returns",
        "incidents that bear no fault's name: 1, of which told 1",
        "    stuck_rank on [1]: opened after 340 s; told 1 firing, 0 resolved; 0 returns",
    ]


def test_lateness_is_read_from_the_sidecars_own_page(capsys):
    """As the exporter writes it: three of four within 100 ms, the last below half a second."""
    late = Distribution(exported.LATE_BOUNDS)
    for value in (0.0, 0.001, 0.1, 0.4):
        late.see(value)
    where = ("e", "n", "loads")
    samples = [
        Sample(exported.SCRAPE_LATE, late, ("e", "loads")),
        Sample(exported.SCRAPES, 4.0, (*where, "ok")),
        Sample(exported.SCRAPE_SECONDS, 0.04, where),
        Sample(exported.SCRAPE_BYTES, 8000.0, where),
    ]
    report.reading(written(Exporter({"all": lambda: samples}).collect()).decode())
    said = capsys.readouterr().out
    assert "4 pages of 2 kB, 10 ms long in the mean; 75.00% began within 100 ms" in said
    assert "p50 <= 0.01 s, p99 <= 0.5 s, all <= 0.5 s" in said
    assert "{'ok': '4.0'}" in said


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_faults_are_spread_over_all_ranks(ranks):
    """None twice before each had its turn."""
    assert sorted(islice(_spread(ranks), ranks)) == list(range(ranks))
