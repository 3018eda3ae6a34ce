"""Every panel and every rule shows something on pages that engines really served, in a real Prometheus: no dashboard says "no data" there.

Pages are backfilled: two captures of one engine are the ends of five minutes, at points 15 s apart.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector import exported
from dashboards.quantities import HIT_RATIO, QUANTITIES
from dashboards.recording import BALANCEDNESS, recordings
from dashboards.series import Source
from diagnose.model import Class

CAPTURES = Path(__file__).parent.parent / "captures"
POINTS, EVERY = 21, 15
Series = dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]

SGLANG = CAPTURES / "sglang-0.5.23"
VLLM = CAPTURES / "vllm-0.32.0"
PAGES = {
    "sglang 0.5.23, 8 ranks": (Source.SGLANG, SGLANG / "tp8-dp8-ep8-t1.prom", SGLANG / "tp8-dp8-ep8-t2.prom", ":"),
    "sglang 0.5.23, as OpenMetrics": (Source.SGLANG, SGLANG / "tp8-dp8-ep8-t1.prom", SGLANG / "tp8-dp8-ep8-t2.prom", "_"),
    "sglang 0.5.23, two TP ranks a rank": (Source.SGLANG, SGLANG / "tp4-dp2-ep4.prom", None, ":"),
    "vllm 0.32.0, internal balancing": (Source.VLLM, VLLM / "1.prom", VLLM / "2.prom", ":"),
    "vllm 0.32.0, experts": (Source.VLLM, VLLM / "slowmoe-1.prom", VLLM / "slowmoe-2.prom", ":"),
}
"""Source, first page, last page (None: one and a half times the first, as there is one capture only), how the colon is spelled."""

UNSEEN = {
    name: {HIT_RATIO.record} | ({BALANCEDNESS} if last else set())
    for name, (source, _, last, _) in PAGES.items()
    if source is Source.SGLANG
}
"""What SGLang's captures cannot show: no prompt was computed in them, and experts were observed before the first one only. A ratio of
nothing is no data."""

RANKS = {"sglang 0.5.23, two TP ranks a rank": 2, "vllm 0.32.0, internal balancing": 2, "vllm 0.32.0, experts": 2}
"""Ranks on the page; 8 on the others."""


def of_page(path: Path, mark: str, rank_of_all: str) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by series, as Prometheus stores them; without buckets, which no expression reads, and the pid, which changes."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created")):
                labels = {k: v for k, v in sample.labels.items() if k != "pid" and v}
                key = (sample.name.replace(":", mark, 1), tuple(sorted({**labels, "instance": rank_of_all}.items())))
                found[key] = sample.value
    return found


def of_engine(first: Path, last: Path | None, mark: str) -> Series:
    """The series of five minutes, in a straight line from page to page."""
    start = of_page(first, mark, "engine-0:30000")
    end = of_page(last, mark, "engine-0:30000") if last else {key: 1.5 * value for key, value in start.items()}
    return {key: [a + (end[key] - a) * k / (POINTS - 1) for k in range(POINTS)] for key, a in start.items() if key in end}


def of_ours() -> Series:
    """Every family of our own page for one engine of two ranks, counters growing; all causes and classes are there once."""
    values = {
        "engine": ["http://engine-0:30000"],
        "rank": ["0", "1"],
        "class": [k.value for k in Class],
        "cause": ["slow_rank"],
        "source": ["metrics"],
        "le": ["0.1", "+Inf"],
    }
    found: Series = {}
    parts = [(name, f) for f in (*exported.of_signals().values(), *exported.FAMILIES.values()) for name in f.series]
    for name, family in parts:
        combined: list[dict[str, str]] = [{}]
        for label in (*family.labels, *["le"] * name.endswith("_bucket")):
            combined = [{**c, label: v} for c in combined for v in values.get(label, ["confirmed" if label == "state" else "ok"])]
        for labels in combined:
            step = 0.0 if family.kind is exported.Kind.GAUGE else 100.0
            found[(name, tuple(sorted(labels.items())))] = [1.0 + step * k for k in range(POINTS)]
    return found


@pytest.fixture
def prometheus(server_binary, serve, tmp_path):
    """`with prometheus(series) as ask`: ask(expression) -> [(labels, value)] at the end of the series."""
    promtool, _ = server_binary("promtool")
    end = time.time() // EVERY * EVERY - EVERY

    @contextmanager
    def run(series: Series) -> Iterator[object]:
        folder = tmp_path / f"p{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        with (folder / "in.om").open("w") as out:
            for (name, labels), points in series.items():
                where = ",".join(f'{k}="{v}"' for k, v in labels)
                out.writelines(
                    f"{name}{{{where}}} {value!r} {end - (POINTS - 1 - k) * EVERY:.0f}\n"
                    for k, value in enumerate(points)
                    if math.isfinite(value)
                )
            out.write("# EOF\n")
        made = subprocess.run(
            [promtool, "tsdb", "create-blocks-from", "openmetrics", folder / "in.om", folder / "data"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        (folder / "p.yml").write_text("{}")
        arguments = [f"--config.file={folder / 'p.yml'}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
        with serve("prometheus", arguments) as url, httpx.Client(timeout=30.0) as client:

            def ask(expression: str) -> list[tuple[dict[str, str], float]]:
                answer = client.post(f"{url}/api/v1/query", data={"query": expression, "time": str(end)})
                assert answer.status_code == 200, f"{expression}: {answer.text}"
                return [(r["metric"], float(r["value"][1])) for r in answer.json()["data"]["result"]]

            yield ask

    return run


def test_everything_resolves_on_pages_of_each_version(prometheus, asked):
    """Each recorded series has a finite value for each rank of each page, and each panel shows something with each source."""
    shown: dict[str, set[str]] = {}
    for name, (source, first, last, mark) in PAGES.items():
        recorded: Series = {}
        with prometheus(of_engine(first, last, mark)) as ask:
            for rule in recordings():
                if rule.source is source:
                    got = [(labels, value) for labels, value in ask(rule.expr) if math.isfinite(value)]
                    wanted = 1 if rule.record == BALANCEDNESS else RANKS.get(name, 8)
                    if rule.record in UNSEEN.get(name, ()):
                        wanted = 0
                    assert len(got) == wanted, (name, rule.record, got)
                    keep(recorded, rule.record, got, source)
        add_derived(prometheus, recorded)
        shown[name] = asks(prometheus, asked, recorded, source)
    ours = of_ours()
    with prometheus(ours) as ask:
        for rule in recordings():
            if rule.source is Source.SLOWRANK:
                got = ask(rule.expr)
                assert len(got) == (1 if rule.record == BALANCEDNESS else 2), (rule.record, got)
                keep(ours, rule.record, got, Source.SLOWRANK)
    add_derived(prometheus, ours)
    everything = {f"{q.page}: {q.panel}: {q.expr}" for q in asked}
    assert everything - asks(prometheus, asked, ours, Source.SLOWRANK) == set()
    for name, (source, *_) in PAGES.items():
        missing = {q.record for q in QUANTITIES.values() if source not in q.of} | UNSEEN.get(name, set())
        expected = {f"{q.page}: {q.panel}: {q.expr}" for q in asked if needs_only_recorded(q.expr, missing, source)}
        assert expected - shown[name] == set(), name


def needs_only_recorded(expression: str, missing: set[str], source: Source) -> bool:
    """Whether the expression is on recorded series alone, and on such as this source has."""
    from_waits = {"rank:slowrank_lateness", "engine:slowrank_host_lost", "rank:slowrank_wait"} if source is Source.VLLM else set()
    from_pairs = {"engine:slowrank_pairs_skew", BALANCEDNESS} if source is Source.VLLM else set()
    if any(name in expression for name in (*missing, *from_waits, *from_pairs)):
        return False
    return "rank:slowrank" in expression or "engine:slowrank" in expression


def keep(series: Series, record: str, got: list[tuple[dict[str, str], float]], source: Source | None) -> None:
    """What a recording rule writes."""
    for labels, value in got:
        own = {k: v for k, v in labels.items() if k != "__name__"} | ({"source": source.value} if source else {})
        series[(record, tuple(sorted(own.items())))] = [value] * POINTS


def add_derived(prometheus, series: Series) -> None:
    """The rules on recorded series, each over those before it."""
    with prometheus(series) as ask:
        for rule in recordings():
            if rule.source is None:
                keep(series, rule.record, ask(rule.expr), None)


def asks(prometheus, asked, series: Series, source: Source) -> set[str]:
    """The queries that show something."""
    with prometheus(series) as ask:
        return {f"{q.page}: {q.panel}: {q.expr}" for q in asked if ask(q.with_values(source=source.value))}
