"""A running vLLM with two ranks, the users that it serves, what can be done to one of its ranks, and what slowrank says of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).parent
PYTHON = os.environ.get("SLOWRANK_VLLM_PYTHON", "")
START_S = float(os.environ.get("SLOWRANK_VLLM_START_S", "400"))  # 90 to 170 s were seen on two cores that others used as well
SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
USERS = 12
FOR = "25s"
KEPT = os.environ.get("SLOWRANK_VLLM_REPORTS", "")
SLOW, MS = 1, 60.0
"""The rank that is slowed, and by how many milliseconds a forward."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asks for: lengths in tokens, and the rank that it is pinned to, if any."""

    prompt: int = 32
    answer: int = 64
    rank: int | None = None


Draw = Callable[[random.Random], Request]


class Server:
    """One engine. `kind`: dense, or moe, whose ranks meet in every forward."""

    def __init__(self, kind: str, folder: Path, process: subprocess.Popen[bytes], port: int) -> None:
        self.kind, self._folder, self._process = kind, folder, process
        self.url = f"http://127.0.0.1:{port}"

    def wait(self) -> None:
        """Until it answers. AssertionError with the end of its log when it does not."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            assert self._process.poll() is None, self._log()
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=2).status_code == 200:
                    self._spread()
                    return
            time.sleep(1)
        raise AssertionError(f"not up after {START_S:.0f} s (SLOWRANK_VLLM_START_S): {self._log()}")

    def _spread(self) -> None:
        """Each rank's worker on a core of its own: vLLM by itself was seen to bind those of two engines to one core."""
        cores = sorted(os.sched_getaffinity(0))
        for rank in range(2):
            for thread in Path(f"/proc/{self._pids(rank)['Worker']}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {cores[rank % len(cores)]})

    def _log(self) -> str:
        return (self._folder / "log").read_text()[-2000:]

    @contextlib.contextmanager
    def users(self, draw: Draw = lambda _rng: Request()) -> Iterator[None]:
        """USERS in closed loop, each sending what `draw` says, from 5 s before until the end."""
        done = threading.Event()
        threads = [threading.Thread(target=self._use, args=(draw, done, seed)) for seed in range(USERS)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(5)
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join(60)

    def _use(self, draw: Draw, done: threading.Event, seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=self.url, timeout=20) as client:
            while not done.is_set():
                asked = draw(rng)
                prompt = [rng.randrange(10, 250) for _ in range(asked.prompt)]
                body = {"model": self.kind, "prompt": prompt, "max_tokens": asked.answer, "ignore_eos": True}
                headers = {} if asked.rank is None else {"X-data-parallel-rank": str(asked.rank)}
                with contextlib.suppress(httpx.HTTPError):
                    client.post("/v1/completions", json=body, headers=headers)

    @contextlib.contextmanager
    def delayed(self, rank: int, ms: float) -> Iterator[None]:
        """Each forward of a rank later by a sleep: no process waits for a CPU, so the kernel's counts show nothing of it."""
        asked = self._folder / "delay"
        asked.write_text(f"{rank} {ms}")
        try:
            yield
        finally:
            asked.unlink()

    @contextlib.contextmanager
    def starved(self, rank: int, thieves: int = 8) -> Iterator[None]:
        """Competitors on the core of a rank's forwards, each with the weight of this test's process."""
        core = min(os.sched_getaffinity(self._pids(rank)["Worker"]))
        running = [subprocess.Popen([sys.executable, "-c", SPIN, str(core)]) for _ in range(thieves)]
        try:
            yield
        finally:
            for thief in running:
                thief.kill()
                thief.wait()

    @contextlib.contextmanager
    def stopped(self, rank: int) -> Iterator[None]:
        """A rank's processes stopped by a signal."""
        pids = self._pids(rank).values()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _pids(self, rank: int) -> dict[str, int]:
        """EngineCore and Worker of a rank: children of the server, and theirs."""
        core = next(pid for pid in _children(self._process.pid) if _title(pid) == f"VLLM::EngineCore_DP{rank}")
        worker = next(pid for pid in _children(core) if _title(pid).startswith("VLLM::Worker"))
        return {"EngineCore": core, "Worker": worker}


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _title(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().strip("\0 ")
    return ""


@contextlib.contextmanager
def served(kind: str, folder: Path) -> Iterator[Server]:
    """A server of two ranks, from its start to its end."""
    subprocess.run([PYTHON, str(HERE / "model.py"), str(folder / kind), kind], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {"SLOWRANK_DELAY_FILE": str(folder / "delay"), "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": "127.0.0.1"}
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    path = f"{Path(PYTHON).parent}{os.pathsep}{kept.get('PATH', '')}"
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--served-model-name", kind, "--enforce-eager"]
    arguments += ["--max-model-len", "1024", "--max-num-seqs", "32", "--data-parallel-size", "2", "--api-server-count", "1"]
    with (folder / "log").open("w") as log:
        command = [str(Path(PYTHON).parent / "vllm"), "serve", str(folder / kind), *arguments]
        process = subprocess.Popen(command, env=kept | own | quiet | {"PATH": path}, stdout=log, stderr=subprocess.STDOUT)
    server = Server(kind, folder, process, port)
    try:
        server.wait()
        yield server
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def slowrank(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "slowrank", *arguments], capture_output=True, text=True, check=False)


def diagnosed(name: str, folder: Path, server: Server, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the engine's part of the report, of pages that are recorded first; the text is kept if wanted."""
    capture = folder / f"{name}.slowrank"
    recorded = slowrank("record", server.url, "--for", FOR, "-o", str(capture), *(one for one in more if one == "--procfs"))
    assert capture.exists(), recorded.stderr
    options = [one for one in more if one != "--procfs"]
    done = slowrank("diagnose", str(capture), *options, "--format", "json")
    if KEPT:
        said = slowrank("diagnose", str(capture), *options)
        Path(KEPT, f"{name}.txt").write_text(f"{said.stdout}{said.stderr}exit {said.returncode}\n")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["engines"][0]


def long_on_rank_0(rng: random.Random) -> Request:
    """Four of five requests are long and pinned to rank 0."""
    if rng.random() < 0.8:
        return Request(rng.randint(700, 900), rng.randint(60, 100), 0)
    return Request(rng.randint(8, 40), rng.randint(60, 100), 1)
