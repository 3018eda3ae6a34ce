"""Every query of every panel, asked of a Prometheus that holds a run with a fault: the engine's pages and ours as they were scraped, in
both spellings of SGLang's names, and the recording rules as promtool works them out over it."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from collector import exported, signals
from collector.capture import read_capture
from collector.exporter import Exporter, Sample, written
from collector.intake import Intake
from collector.model import Page, Source
from dashboards import build
from slowrank.config.model import Diagnosis, Scrape
from slowrank.discovery.spec import EngineSpec
from slowrank.service import samples
from slowrank.service.office import Office
from slowrank.service.watch import Watch
from workload.config import ClusterConfig
from workload.schedule import parse
from workload.virtual_time.recording import ENGINE, START, Recording
from workload.virtual_time.simulate import simulate

RANKS, RANK = 4, 2
SECONDS, ONSET, EVERY = 300.0, 100.0, 5.0
END = START + SECONDS - EVERY

ABSENT = {
    exported.BREAKAGES: "a watch that broke",
    exported.DELIVERIES: "a receiver",
    exported.EXPORT_FAILURES: "a defect",
    exported.OUTBOX: "a receiver",
    exported.PROBLEMS: "a problem of targets, receivers or files",
    exported.RELOADS: "a service that was told to reload",
    exported.RULE_FAILURES: "a defect",
}
"""Series that such a run does not have, and what it would take. A panel may be empty if it asks for one of these."""

Kept = list[tuple[str, str, float]]
"""(series, value, unix seconds)"""


@dataclass(frozen=True)
class Run:
    """What was scraped of the engine and of slowrank, and the pages themselves."""

    engine: Kept
    ours: Kept
    intake: Intake


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Five minutes of four ranks, of which one's host is starved from the second minute on, watched by slowrank."""
    folder = tmp_path_factory.mktemp("run")
    with Recording(folder / "capture") as recording:
        fault = parse(f"host_cpu_starved:rank={RANK},onset={ONSET:g}")
        simulate(ClusterConfig(ranks=RANKS, seed=7), [fault], SECONDS, recording, metrics_every=EVERY, cards=recording.cards)
    return asyncio.run(watched(list(read_capture(folder / "capture")), folder / "i.db"))


async def watched(pages: list[Page], file: Path) -> Run:
    office = Office(file, (), (), "")

    def hear(diagnosis):
        office.desk.hear(diagnosis)
        return frozenset()

    watch = Watch(EngineSpec(ENGINE, (ENGINE,), labels=(("zone", "z"),)), Scrape(), Diagnosis(), hear, list)
    engine: Kept = []
    ours: Kept = []
    now, judged = START, 0

    def page() -> Iterator[Sample]:
        yield from samples.of_engine(watch, now)
        yield from samples.of_process()
        yield from samples.of_office(office)
        yield Sample(exported.BUILD, 1.0, ("0",))
        yield Sample(exported.SCRAPE_BUDGET, 0.005)

    exporter = Exporter({"all": page})
    for one in pages:
        watch._page(one)
        if one.source is not Source.SGLANG_METRICS or one.arrived > END:
            continue
        now = one.arrived
        if now >= START + 10 * (judged + 1):
            judged += 1
            await watch.judge()
        engine += kept(one.body.decode(), 'instance="127.0.0.1:30000",job="engine"', now)
        ours += kept(written(exporter.collect()).decode(), 'instance="127.0.0.1:9469",job="slowrank"', now)
    await office.close()
    return Run(engine, ours, watch.intake)


def kept(page: str, labels: str, at: float) -> Kept:
    """What a scrape leaves, less the engine's buckets, which no expression reads."""
    found: Kept = []
    for line in page.splitlines():
        series, _, value = line.rpartition(" ")
        name, _, rest = series.partition("{")
        if not line.startswith("#") and not (name.endswith("_bucket") and name.startswith("sglang")):
            found.append((f"{name}{{{labels}" + (f",{rest}" if rest else "}"), value, at))
    return found


class Asking:
    """Answers to expressions at the end of the run."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, expression: str) -> list[tuple[dict[str, str], float]]:
        reply = httpx.post(f"{self.url}/api/v1/query", data={"query": expression, "time": f"{END:.3f}"}, trust_env=False, timeout=60)
        assert reply.status_code == 200, f"{expression}: {reply.text}"
        return [(one["metric"], float(one["value"][1])) for one in reply.json()["data"]["result"]]

    def by_rank(self, expression: str) -> list[float]:
        """Values in the order of the ranks."""
        return [value for _, value in sorted(((int(labels["rank"]), value) for labels, value in self(expression)))]


@pytest.fixture(params=[":", "_"], ids=["sglang:", "sglang_"])
def ask(request, run, server_binary, serve, tmp_path) -> Iterator[Asking]:
    """A Prometheus with the run and with what the recording rules make of it: those on scraped series, then those on recorded ones."""
    promtool, _ = server_binary("promtool")
    engine = [(series.replace("sglang:", f"sglang{request.param}", 1), value, at) for series, value, at in run.engine]
    (tmp_path / "run.om").write_text("\n".join(f"{series} {value} {at:.3f}" for series, value, at in (*engine, *run.ours)) + "\n# EOF\n")
    data = tmp_path / "data"
    tool([promtool, "tsdb", "create-blocks-from", "openmetrics", tmp_path / "run.om", data])
    (tmp_path / "p.yml").write_text("{}")
    options = [f"--config.file={tmp_path / 'p.yml'}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y"]
    rules = yaml.safe_load(build.rule_files()["slowrank.rules.yaml"])["groups"][0]["rules"]
    told = [rule for rule in rules if "source" in rule.get("labels", {})]
    for some in (told, [rule for rule in rules if rule not in told]):
        (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "r", "rules": some}]}))
        blocks = tmp_path / "recorded"
        with serve("prometheus", [*options, "--web.listen-address=127.0.0.1:0"]) as url:
            span = [f"--start={START + 60:.0f}", f"--end={END:.0f}", "--eval-interval=5s", f"--url={url}", f"--output-dir={blocks}"]
            tool([promtool, "tsdb", "create-blocks-from", "rules", *span, tmp_path / "rules.yml"])
        for block in blocks.iterdir():
            if block.is_dir():
                shutil.move(block, data / block.name)
    with serve("prometheus", [*options, "--web.listen-address=127.0.0.1:0"]) as url:
        yield Asking(url)


def tool(command: list[object]) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.cluster
def test_every_panel_of_a_run_shows_something_and_the_right_thing(ask, asked, run):
    """No query fails, and none is empty but those whose series such a run cannot have. Five figures of panels are those of the window that
    a diagnosis reads of the same minute; a rate over a minute is that between its first and last scrape, 55 s."""
    empty = []
    for query in asked:
        filled = [query.with_values(**{"$engine": ENGINE, "$rank": str(RANK)}, source=source) for source in ("sglang", "slowrank")]
        shown = [value for expression in filled for _, value in ask(expression) if not math.isnan(value)]
        if not shown and not any(re.search(rf"\b{name}\b", query.expr) for name in ABSENT):
            empty.append(f"{query.page}: {query.panel}: {query.expr}")
    assert not empty, "\n".join(empty)
    ((_, evaluated),) = ask('max(timestamp(rank:slowrank_steps:rate1m{source="sglang"}))')
    window = run.intake.window(ENGINE, 60.0 - EVERY, START + (evaluated - START) // EVERY * EVERY)
    steps = window.mean(signals.STEPS_ACTIVE) + window.mean(signals.STEPS_IDLE)
    waits = window.mean(signals.RECV_WAIT) + window.mean(signals.SYNC_WAIT)
    figures = {
        'rank:slowrank_step_seconds:rate1m{source="sglang"}': 1 / steps,
        'rank:slowrank_wait_per_step_seconds:rate1m{source="sglang"}': waits / steps,
        'rank:slowrank_pairs_per_step:rate1m{source="slowrank"}': window.mean(signals.ATTENTION_PAIRS) / steps,
        'rank:slowrank_scheduler_cpu:rate1m{source="sglang"}': window.mean(signals.SCHEDULER_CPU),
        'rank:slowrank_tokens:rate1m{source="slowrank"}': window.mean(signals.ATTENTION_TOKENS),
    }
    for selector, expected in figures.items():
        record = selector.partition("{")[0]
        assert any(record in query.expr for query in asked), record
        assert ask.by_rank(selector) == pytest.approx(expected.tolist(), rel=1e-3), selector
    late = ask.by_rank('rank:slowrank_lateness_seconds:rate1m{source="sglang"}')
    assert late.index(max(late)) == RANK
    assert {labels["rank"] for labels, _ in ask(f"{exported.CULPRIT} == 1")} == {str(RANK)}
