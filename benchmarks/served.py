"""`slowrank serve` as the process that a benchmark measures: started, read from outside, ended; and what its /metrics page says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

READ_S = 30.0
"""s in which a page must come: with many engines on a busy core it takes seconds."""

END_S = 20.0
"""s in which it must have ended."""

SERVICE = '[service]\nlisten = "127.0.0.1:0"\nlog_format = "json"\n'


class Served:
    """One that serves. `url` ends without a slash, `code` is its exit code once it has ended."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.pid = process.pid
        self.url = url

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def hold(self, still: bool) -> None:
        """Let it stand still, or go on."""
        self._process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)

    def page(self) -> str:
        """Its own /metrics."""
        return self.get("/metrics")

    def get(self, path: str) -> str:
        """The body of any of its pages."""
        with urllib.request.urlopen(self.url + path, timeout=READ_S) as reply:
            return str(reply.read().decode())

    def memory(self) -> float:
        """Resident, in MB of 2**20 bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


@contextmanager
def serving(folder: Path, config: str, *, nice: int = 0) -> Iterator[Served]:
    """`slowrank serve` in `folder` with a configuration whose [service] is SERVICE and whose rest is `config`. `nice`: on top of ours.

    What it logs above info goes to our error output. Raises SystemExit with what it said if it does not start.
    """
    file = folder / "slowrank.toml"
    file.write_text(SERVICE + config)
    command = ["nice", "-n", str(nice), sys.executable, "-m", "slowrank", "serve", "--config", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        log = process.stderr
        assert log is not None
        try:
            served = Served(process, _address(log))
            drain = threading.Thread(target=_drain, args=(log,), daemon=True)
            drain.start()
            yield served
            served.hold(False)
            process.terminate()
            process.wait(END_S)
            drain.join()
        finally:
            process.kill()


def _address(log: Iterable[str]) -> str:
    said = []
    for line in log:
        said.append(line)
        if '"slowrank serves"' in line:
            return str(json.loads(line)["url"]).rstrip("/")
    raise SystemExit(f"slowrank serve did not start: {''.join(said)[-500:]}")


def _drain(log: Iterable[str]) -> None:
    for line in log:
        if '"level": "info"' not in line:
            print("log:", line.rstrip(), file=sys.stderr, flush=True)


def values(page: str, name: str, label: str = "") -> list[float]:
    """Samples of a series in the order of the page. `label`: as the page writes it, `source="loads"`; without it all."""
    found = re.findall(rf"^{name}(?:\{{([^\n]*)\}})? (\S+)$", page, re.MULTILINE)
    return [float(value) for labels, value in found if label in labels]


def value(page: str, name: str, label: str = "") -> float:
    """The first of them; NaN if there is none."""
    return next(iter(values(page, name, label)), float("nan"))


def cpu(pid: int) -> float:
    """s of CPU that a process has used, threads that ended included, in the kernel's ticks (10 ms)."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
