"""`make dev`: what docker-compose.yml starts, as processes of this machine: a workload, slowrank, Prometheus and Alertmanager on loopback.

Arguments go to the workload: `python deploy/dev.py --fault host_cpu_starved:rank=5,onset=60`, or make dev WORKLOAD="--fault ...".
Prometheus and Alertmanager are those on PATH, else Debian's packages, unpacked into .dev/ and not installed. There is no Grafana among
Debian's packages: give one of your own http://127.0.0.1:9090 and the dashboards in dashboards/generated.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = ROOT / "deploy" / "compose"
STATE = ROOT / ".dev"


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is had: its names, on PATH and in its Debian package. `templates`: where Debian's binary looks for files that are
    in the package, which is not installed; the path is rewritten to the folder that the binary is started in."""

    names: tuple[str, ...]
    package: str
    templates: str = ""


PROMETHEUS = Server(("prometheus",), "prometheus")
ALERTMANAGER = Server(("alertmanager", "prometheus-alertmanager"), "prometheus-alertmanager", "/usr/share/prometheus/alertmanager")


def main() -> int:
    """Start all of it, say where, and end all of it with Ctrl-C or when one ends."""
    try:
        (prometheus, _), (alertmanager, templates) = binary(PROMETHEUS), binary(ALERTMANAGER)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        sys.stderr.write(
            f"dev: cannot have Prometheus and Alertmanager: {said.strip()}\ninstall both, or run `docker compose up --build`\n"
        )
        return 1
    data = STATE / "data"
    (data / "rules").mkdir(parents=True, exist_ok=True)
    shutil.copy(FILES / "prometheus.yml", data)
    shutil.copy(ROOT / "dashboards" / "generated" / "slowrank.rules.yaml", data / "rules")
    slowrank = [sys.executable, "-P", "-m", "slowrank"]
    commands: dict[str, Sequence[str | Path]] = {
        "workload": [*slowrank, "workload", "run", "--port", "30000", "--for", "24h", *sys.argv[1:]],
        "slowrank": ["env", f"SLOWRANK_SERVICE__INCIDENTS={data / 'slowrank.db'}", *slowrank, "serve", "--config", FILES / "slowrank.toml"],
        "prometheus": [
            prometheus,
            f"--config.file={data / 'prometheus.yml'}",
            f"--storage.tsdb.path={data / 'prometheus'}",
            "--web.listen-address=127.0.0.1:9090",
        ],
        "alertmanager": [
            alertmanager,
            f"--config.file={FILES / 'alertmanager.yml'}",
            f"--storage.path={data / 'alertmanager'}",
            "--cluster.listen-address=",
            "--web.listen-address=127.0.0.1:9093",
        ],
    }
    return run(commands, data, {"alertmanager": templates})


def run(commands: dict[str, Sequence[str | Path]], folder: Path, elsewhere: dict[str, Path]) -> int:
    """Run the commands in the folder (or `elsewhere`, by name), each with a log there, until a signal comes (0) or one of them ends (1).

    Then the others are ended."""
    stopped = threading.Event()
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, lambda *_: stopped.set())
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                # in a group of its own, so that Ctrl-C reaches it once, from here
                running[name] = subprocess.Popen(
                    command, cwd=elsewhere.get(name, folder), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
        print(f"slowrank http://127.0.0.1:9469  Prometheus :9090  Alertmanager :9093  engine :30000  logs {folder}  (Ctrl-C ends all)")
        while not stopped.wait(0.5):
            ended = [name for name, process in running.items() if process.poll() is not None]
            if ended:
                print("\n".join(f"{n} ended with {running[n].returncode}: {(folder / f'{n}.log').read_text()[-500:]}" for n in ended))
                return 1
        return 0
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def binary(server: Server) -> tuple[Path, Path]:
    """The server's binary, and the folder to start it in. OSError or CalledProcessError when neither PATH nor Debian has it."""
    on_path = next(filter(None, map(shutil.which, server.names)), None)
    if on_path:
        return Path(on_path), ROOT
    home = STATE / server.package
    if not home.is_dir():
        STATE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=STATE) as folder:  # renamed when complete: an interrupted run leaves nothing half done
            subprocess.run(["apt-get", "download", server.package], cwd=folder, check=True, capture_output=True, text=True)
            (deb,) = Path(folder).glob("*.deb")
            subprocess.run(["dpkg-deb", "-x", deb, "unpacked"], cwd=folder, check=True, capture_output=True, text=True)
            if server.templates:
                here = ("./" * len(server.templates))[: len(server.templates)]  # of the same length, and means the same at any
                found = _in(Path(folder) / "unpacked", server)
                found.write_bytes(found.read_bytes().replace(server.templates.encode(), here.encode()))
            (Path(folder) / "unpacked").rename(home)
    return _in(home, server), home / server.templates.lstrip("/")


def _in(home: Path, server: Server) -> Path:
    return next(path for name in server.names if (path := home / "usr" / "bin" / name).is_file())


if __name__ == "__main__":
    sys.exit(main())
