"""From a fault to a page and back, over real servers: engine, slowrank, Prometheus, VictoriaMetrics, Alertmanager, webhook."""

from __future__ import annotations

import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dashboards import build
from workload.cluster import Cluster
from workload.config import ClusterConfig

pytestmark = [pytest.mark.cluster, pytest.mark.beside(row=1)]

FAULT, CLASS, RANK = "host_cpu_starved", "single-point", 2
LONG = 300.0
"""s until a step is given up: on a quiet machine the longest, until the end is told, takes 130."""

ALERTMANAGER = """
route: {{receiver: hook, group_by: [engine], group_wait: 1s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: hook, webhook_configs: [{{url: "{hook}", send_resolved: true}}]}}]
"""


def scraping(engine: str, ours: str) -> list[dict[str, Any]]:
    """As docs/prometheus.md says, each second."""
    jobs: tuple[tuple[str, str, str, dict[str, list[str]]], ...] = (
        ("sglang", engine, "/metrics", {}),
        ("sglang-loads", engine, "/v1/loads", {"format": ["prometheus"]}),
        ("slowrank", ours, "/metrics", {}),
    )
    return [
        {
            "job_name": name,
            "metrics_path": path,
            "params": params,
            "scrape_interval": "1s",
            "static_configs": [{"targets": [url.removeprefix("http://").rstrip("/")]}],
        }
        for name, url, path, params in jobs
    ]


@contextmanager
def slowrank(folder: Path, engine: str) -> Iterator[str]:
    """`slowrank serve`, judging as often as it may; nobody is told by itself."""
    config = folder / "slowrank.toml"
    config.write_text(
        f"""
        service = {{listen = "127.0.0.1:0", log_format = "json"}}
        scrape = {{metrics = "1s", metrics_suspected = "1s", budget = 1.0}}
        diagnosis = {{every = "2s", window = "10s"}}
        engines = [{{nodes = ["{engine}"]}}]
        """
    )
    with (folder / "slowrank.log").open("w+") as log:
        process = subprocess.Popen([sys.executable, "-m", "slowrank", "serve", "--config", str(config)], stderr=log)
        try:
            yield until(lambda: next((said["url"] for said in logged(folder) if said["event"] == "slowrank serves"), None))
        finally:
            process.terminate()
            assert process.wait(60) == 0


def logged(folder: Path) -> list[dict[str, Any]]:
    """What slowrank said so far; a line that is still being written is not there yet."""
    return [json.loads(line) for line in (folder / "slowrank.log").read_text().splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Takes notifications."""
    told: list[dict[str, Any]] = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def victoria(serve: Any, folder: Path, config: Path) -> Iterator[str]:
    """A VictoriaMetrics that scrapes; it does not say which port :0 became."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    options = [f"-promscrape.config={config}", f"-storageDataPath={folder / 'victoria'}", f"-httpListenAddr={address}"]
    with serve("victoria-metrics", [*options, "-search.latencyOffset=0s"]) as url:
        yield url


def until(found: Callable[[], Any]) -> Any:
    """What it finds, once it does."""
    end = time.monotonic() + LONG
    while (one := found()) is None:
        assert time.monotonic() < end, f"not within {LONG:g} s"
        time.sleep(0.2)
    return one


def diagnosed(url: str) -> dict[str, Any]:
    """The only engine of `slowrank diagnose --prometheus`, over the last 20 s, which is nobody's past but the fault's."""
    command = [sys.executable, "-m", "slowrank", "diagnose", "--prometheus", url, "--since", "20s", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 1, (done.stdout[-2000:], done.stderr[-2000:])
    (engine,) = json.loads(done.stdout)["engines"]
    return dict(engine)


def value(url: str, query: str) -> float | None:
    """Of an expression with one result."""
    found = httpx.get(f"{url}/api/v1/query", params={"query": query}, trust_env=False, timeout=60).json()["data"]["result"]
    return float(found[0]["value"][1]) if found else None


def alerts(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was told of the fault's alert, the first first."""
    return [alert for body in list(told) for alert in body["alerts"] if alert["labels"]["alertname"] == f"slowrank_{FAULT}"]


def all_over(told: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The end of the first, once no other goes on: a severity that changes meanwhile ends one alert and begins another."""
    last = {json.dumps(one["labels"], sort_keys=True): one for one in alerts(told)}
    return next(iter(last.values())) if all(one["status"] == "resolved" for one in last.values()) else None


def test_a_fault_is_paged_named_out_of_both_servers_and_resolved(tmp_path, serve):
    """The alerting rule that slowrank made fires through Alertmanager; `diagnose --prometheus` finds the rank in Prometheus and in
    VictoriaMetrics without being told the card; when the fault is gone the page is taken back."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(ClusterConfig(ranks=4, seed=21)))
        engine = cluster.url
        ours = stack.enter_context(slowrank(tmp_path, engine))
        hook, told = stack.enter_context(webhook())
        (tmp_path / "alertmanager.yml").write_text(ALERTMANAGER.format(hook=hook))
        options = [f"--config.file={tmp_path / 'alertmanager.yml'}", f"--storage.path={tmp_path / 'am'}", "--cluster.listen-address="]
        alertmanager = stack.enter_context(serve("alertmanager", [*options, "--web.listen-address=127.0.0.1:0"]))
        build.write(build.rule_files(), tmp_path / "rules")
        scrapes = {"scrape_configs": scraping(engine, ours)}
        rules = {
            "global": {"evaluation_interval": "1s"},
            "rule_files": [str(tmp_path / "rules" / "*.yaml")],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager.removeprefix("http://")]}]}]},
        }
        (tmp_path / "scrape.yml").write_text(json.dumps(scrapes))  # JSON is YAML
        (tmp_path / "prometheus.yml").write_text(json.dumps({**rules, **scrapes}))
        metrics = stack.enter_context(victoria(serve, tmp_path, tmp_path / "scrape.yml"))
        options = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        prometheus = stack.enter_context(serve("prometheus", [*options, "--web.listen-address=127.0.0.1:0"]))

        cluster.inject(FAULT, rank=RANK)
        page = until(lambda: next(iter(alerts(told)), None))
        for url in (prometheus, metrics):
            report = diagnosed(url)
            verdict = report["verdict"]
            assert (verdict["class"], verdict["cause"], verdict["ranks"]) == (CLASS, FAULT, [RANK]), (url, verdict["summary"])
            assert report["engine"] == engine.removeprefix("http://")
            assert "H20-3e" in report["facts"]["accelerator"]
        latest = f"topk(1, rank:slowrank_lateness_seconds:rate1m{{engine='{engine}',source='sglang',rank='{RANK}'}})"
        assert until(lambda: value(prometheus, latest)) > 0

        cluster.clear()
        over = until(lambda: all_over(told))
    assert (page["status"], over["status"]) == ("firing", "resolved")
    assert page["labels"] == over["labels"]
    assert page["labels"] == {**page["labels"], "alertname": f"slowrank_{FAULT}", "class": CLASS, "engine": engine}
    assert page["annotations"]["ranks"] == f"{RANK} "
