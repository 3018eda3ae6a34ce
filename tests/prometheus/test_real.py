"""Real servers: what they hold of an engine's past is diagnosed as the engine would have been."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

from benchmarks import backfill
from slowrank.app import app

END = "2026-01-01T00:02:00Z"


@contextmanager
def holding(kind, table, serve, server_binary, folder):
    """The URL of a real server that holds these samples."""
    if kind == "prometheus":
        (folder / "past.om").write_text("".join(backfill.openmetrics(table)))
        (folder / "p.yml").write_text("global: {}\n")
        promtool, _ = server_binary("promtool")
        subprocess.run(
            [promtool, "tsdb", "create-blocks-from", "openmetrics", "past.om", "data"], cwd=folder, check=True, capture_output=True
        )
        arguments = [f"--config.file={folder / 'p.yml'}", f"--storage.tsdb.path={folder / 'data'}", "--storage.tsdb.retention.time=100y"]
        with serve("prometheus", [*arguments, "--web.listen-address=127.0.0.1:0"]) as url:
            answering(f"{url}/-/ready")
            yield url
    else:
        arguments = [f"-storageDataPath={folder / 'vm'}", "-retentionPeriod=100y", "-search.latencyOffset=0s"]
        with serve("victoria-metrics", [*arguments, "-httpListenAddr=127.0.0.1:{port}"]) as url:
            answering(f"{url}/health")
            body = "".join(backfill.importable(table)).encode()
            httpx.post(f"{url}/api/v1/import/prometheus", content=body, timeout=60.0).raise_for_status()
            httpx.get(f"{url}/internal/force_flush", timeout=60.0).raise_for_status()
            yield url


def answering(url):
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        try:
            if httpx.get(url, timeout=5.0).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url} does not answer")


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["prometheus", "victoria-metrics"])
def test_a_real_server_gives_the_verdict_of_the_capture(kind, captured, serve, server_binary, tmp_path):
    """The engine's metrics and a sidecar's series at 5 s: the capture's verdict; what is not there is exit 4."""
    capture = captured("context_length_skew")
    table = backfill.exported(capture, 5.0) | backfill.scraped(capture, 5.0)
    expected = report(str(capture))
    with holding(kind, table, serve, server_binary, tmp_path) as url:
        seen = report("--prometheus", url, "--at", END, "--since", "2m", code=1)
        assert (seen["class"], seen["cause"], seen["ranks"]) == (expected["class"], expected["cause"], expected["ranks"])
        assert seen["lost_time"]["share"] == pytest.approx(expected["lost_time"]["share"], abs=0.01)
        long_ago = CliRunner().invoke(app, ["diagnose", "--prometheus", url, "--at", "2020-01-01T00:00:00Z"])
        assert long_ago.exit_code == 4
        assert "retention" in long_ago.stderr
        wrong = CliRunner().invoke(app, ["diagnose", "--prometheus", url, "--at", END, "--match", 'cluster=~"("'])
        assert wrong.exit_code == 4
        assert "look at --match" in " ".join(wrong.stderr.split())


def report(*arguments, code=1):
    """The verdict that the command prints as JSON."""
    result = CliRunner().invoke(app, ["diagnose", *arguments, "--format", "json"])
    assert result.exit_code == code, result.output
    (engine,) = json.loads(result.stdout)["engines"]
    return engine["verdict"]
