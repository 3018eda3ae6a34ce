"""Captures of virtual time as a history server would hold them, in real servers."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from collector.capture import read_capture
from collector.model import Page, Source

SECTIONS = {"memory": "memory", "disaggregation": "disagg", "speculative": "spec", "queues": "queues"}


def as_text(page: Page) -> str:
    """A page as Prometheus scrapes it: /v1/loads as its `?format=prometheus` is in SGLang 0.5.23, numbers with dp_rank as only label."""
    if page.source is not Source.SGLANG_LOADS:
        return "\n".join(line for line in page.body.decode().splitlines() if line and not line.startswith("#"))
    lines = []
    for entry in json.loads(page.body)["loads"]:
        fields = {f"sglang_{name}": value for name, value in entry.items() if isinstance(value, int | float)}
        for section, short in SECTIONS.items():
            fields |= {f"sglang_{short}_{k}": v for k, v in (entry.get(section) or {}).items() if isinstance(v, int | float)}
        lines += [f'{name}{{dp_rank="{entry["dp_rank"]}"}} {value!r}' for name, value in fields.items() if name != "sglang_dp_rank"]
    return "\n".join(lines)


def scraped(pages: Iterable[Page], every: float, labels: str) -> Iterator[tuple[str, str, float]]:
    """(series, value, time) of what a server that scrapes each page every so many seconds would keep, less buckets that nobody reads."""
    for page in sampled(pages, every):
        for line in as_text(page).splitlines():
            series, _, value = line.rpartition(" ")
            name, _, rest = series.partition("{")
            if not name.endswith("_bucket") or name.endswith("eplb_gpu_physical_count_bucket"):
                yield f"{name}{{{labels}" + (f",{rest}" if rest else "}"), value, page.arrived


def exported(pages: Iterable[Page], every: float, cluster: str) -> Iterator[tuple[str, str, float]]:
    """The same of slowrank's own page, of what is nowhere else: the decode steps and their time, as last read."""
    for page in sampled((page for page in pages if page.source is Source.SGLANG_LOADS), every):
        for entry in json.loads(page.body)["loads"]:
            who = f'engine="http://{cluster}:30000",cluster="{cluster}",rank="{entry["dp_rank"]}"'
            labels = f'{{instance="slowrank:9108",job="slowrank",{who}}}'
            if entry["decode_moments"]:
                yield f"slowrank_decode_steps_total{labels}", str(entry["decode_moments"][0]), page.arrived
                yield f"slowrank_decode_time_seconds_total{labels}", str(entry["decode_moments"][2] * 1e-6), page.arrived


def sampled(pages: Iterable[Page], every: float) -> Iterator[Page]:
    """The pages of a capture that are scraped at an interval."""
    last: dict[Source, float] = {}
    for page in pages:
        if page.arrived >= last.get(page.source, 0.0) + every - 0.01:
            last[page.source] = page.arrived
            yield page


@dataclass(frozen=True)
class Servers:
    """URLs of a Prometheus and a VictoriaMetrics that hold the same samples."""

    prometheus: str
    victoria: str


Stored = Callable[[Sequence[tuple[str, str, float]]], Servers]


@pytest.fixture
def helpers() -> SimpleNamespace:
    """The functions above, for tests that cannot import this file."""
    return SimpleNamespace(scraped=scraped, exported=exported, sampled=sampled, read=read_capture)


@pytest.fixture
def stored(serve, server_binary, tmp_path) -> Iterator[Stored]:
    """Both servers with given samples in them."""
    with ExitStack() as stack:

        def fill(samples: Sequence[tuple[str, str, float]]) -> Servers:
            prometheus = stack.enter_context(_prometheus(serve, server_binary("promtool")[0], tmp_path, samples))
            return Servers(prometheus, stack.enter_context(_victoria(serve, tmp_path, samples)))

        yield fill


@contextmanager
def _prometheus(serve, promtool: Path, folder: Path, samples: Sequence[tuple[str, str, float]]) -> Iterator[str]:
    """External labels, as in production: remote read puts them on each series."""
    text, data, config = folder / "samples.om", folder / "prometheus", folder / "prometheus.yml"
    text.write_text("\n".join(f"{series} {value} {at:.3f}" for series, value, at in samples) + "\n# EOF\n")
    config.write_text("global: {external_labels: {region: eu, replica: a}}\n")
    command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    options = [f"--config.file={config}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y"]
    with serve("prometheus", [*options, "--web.listen-address=127.0.0.1:0"]) as url:
        yield url


@contextmanager
def _victoria(serve, folder: Path, samples: Sequence[tuple[str, str, float]]) -> Iterator[str]:
    with socket.socket() as probe:  # VictoriaMetrics does not say which port :0 became
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    options = [f"-storageDataPath={folder / 'victoria'}", "-retentionPeriod=100y", "-search.latencyOffset=0s"]
    with serve("victoria-metrics", [*options, f"-httpListenAddr={address}"]) as url:
        _until(f"{url}/health", "OK")
        body = "\n".join(f"{series} {value} {round(at * 1000)}" for series, value, at in samples).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/import/prometheus", body, method="POST")):
            pass
        with urllib.request.urlopen(f"{url}/internal/force_flush"):  # what was imported is searchable after seconds, or now
            pass
        yield url


def _until(url: str, word: str) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url) as reply:
                if word in reply.read().decode():
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{url} did not say {word}")
