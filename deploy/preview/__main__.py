"""Pictures of the dashboards: twenty minutes of a fleet that is simulated, watched by slowrank, and kept by a real Prometheus.

`python -m deploy.preview` makes the history (once, into .dev/preview), starts Prometheus with it, and has draw.mjs draw every page
into docs/dashboards. `--serve` only starts Prometheus and says where. docs/dashboards.md says how true the pictures are.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from dashboards import build
from deploy.dev import PROMETHEUS, ROOT, STATE, binary
from deploy.preview.history import END, START, captures, write_samples

HOME = STATE / "preview"
DRAWER = Path(__file__).parent
PICTURES = ROOT / "docs" / "dashboards"
GONE = "20s"
"""A series of which a scrape of 15 s brings nothing is over. A Prometheus that scrapes marks it so, and text has no such mark."""

SHOTS = {
    "fleet": ("fleet", {}),
    "engine": ("engine", {"source": "slowrank", "engine": "http://late-host:30000"}),
    "engine-512": ("engine", {"source": "slowrank", "engine": "http://512-ranks:30000"}),
    "rank": ("rank", {"source": "slowrank", "engine": "http://hot-card:30000", "rank": "6"}),
    "diagnosis": ("diagnosis", {"engine": "http://late-host:30000"}),
    "diagnosis-512": ("diagnosis", {"engine": "http://512-ranks:30000"}),
    "itself": ("itself", {}),
}
"""Picture -> page, and the values of its variables."""


def main() -> int:
    """0; 1 when something that it needs is not there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serve", action="store_true", help="start Prometheus with the history, and draw nothing")
    parser.add_argument("--into", type=Path, default=PICTURES, help="folder of the pictures")
    parser.add_argument("--only", default="", help="names of pictures, with commas")
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Prometheus is ended too
    try:
        server, _ = binary(PROMETHEUS)
        data = history(server)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"preview: {str(getattr(error, 'stderr', '') or error).strip()}\n")
        return 1
    with prometheus(server, data) as url:
        if asked.serve:
            print(f"{url}, from {START:.0f} to {END:.0f} (Ctrl-C ends it)")
            with_patience()
            return 0
        return draw(url, asked.into, asked.only.split(",") if asked.only else list(SHOTS), asked.theme)


def history(server: Path) -> Path:
    """The folder with Prometheus' data: samples, then what the recording rules make of them, then what these make of each other."""
    data = HOME / "data"
    if data.is_dir():
        return data
    making, text, incidents = HOME / "making", HOME / "samples.om", HOME / "incidents.db"
    shutil.rmtree(making, ignore_errors=True)
    incidents.unlink(missing_ok=True)
    making.mkdir(parents=True)
    promtool = server.with_name("promtool")
    shown = captures(HOME)
    with text.open("w", encoding="utf-8") as out:
        asyncio.run(write_samples(out, shown, incidents))
    _run([promtool, "tsdb", "create-blocks-from", "openmetrics", text, making])
    text.unlink()
    rules = HOME / "rules.yaml"
    rules.write_text("".join(build.rule_files().values()), encoding="utf-8")
    for _ in range(2):  # rules of one pass do not see each other's series
        with prometheus(server, making) as url:
            span = [f"--start={START:.0f}", f"--end={END:.0f}", "--eval-interval=15s", f"--output-dir={making}"]
            _run([promtool, "tsdb", "create-blocks-from", "rules", f"--url={url}", *span, rules])
    making.rename(data)  # when complete: an interrupted run leaves nothing half done
    return data


@contextmanager
def prometheus(server: Path, data: Path) -> Iterator[str]:
    """A Prometheus on a port of its own that scrapes nothing and forgets nothing."""
    config, log = HOME / "prometheus.yml", HOME / "prometheus.log"
    config.write_text("{}\n", encoding="utf-8")
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--query.lookback-delta={GONE}",
    ]
    with log.open("wb") as out:
        process = subprocess.Popen([server, *options, "--web.listen-address=127.0.0.1:0"], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(20)


def draw(url: str, folder: Path, names: list[str], theme: str) -> int:
    """Have draw.mjs draw pictures of what is in the Prometheus at `url`. The exit code of it."""
    unknown = set(names) - set(SHOTS)
    if unknown or not (DRAWER / "node_modules").is_dir():
        sys.stderr.write(
            f"preview: no picture is called {', '.join(sorted(unknown))}; there are {', '.join(SHOTS)}\n"
            if unknown
            else f"preview: what draws is not installed; run `npm install --ignore-scripts` in {DRAWER.relative_to(ROOT)} (Node >= 20)\n"
        )
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    shots = []
    for name in names:
        page, variables = SHOTS[name]
        values = "".join(f"&var-{key}={quote(value)}" for key, value in variables.items())
        shots.append(f"{name}=slowrank-{page}?from={START * 1000:.0f}&to={END * 1000:.0f}&theme={theme}{values}")
    return subprocess.run(["node", DRAWER / "draw.mjs", url, folder.resolve(), *shots], check=False).returncode


def with_patience() -> None:
    """Until Ctrl-C."""
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        pass


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(600):
        text = log.read_text(errors="replace")
        found = re.search(r'msg="Listening on" address=(127\.0\.0\.1:[1-9]\d*)', text)
        if found and "Server is ready" in text:
            return f"http://{found[1]}"
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise OSError(f"Prometheus did not start: {log.read_text(errors='replace')[-1000:]}")


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
