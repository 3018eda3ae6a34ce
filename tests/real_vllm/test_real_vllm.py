"""A real vLLM 0.32 with two ranks on this machine's CPU, one of them slowed by 60 ms a forward. docs/vllm.md says how to have one.

Opt-in: minutes each, and 6 GB of memory. Only structure is asserted: steps on a CPU that others use have no steady length.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

HERE = Path(__file__).parent
PYTHON = os.environ.get("SLOWRANK_VLLM_PYTHON", "")
START_S = 400.0  # 90 to 170 s on two cores that others used as well

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="SLOWRANK_VLLM_PYTHON names no interpreter with vLLM (docs/vllm.md)"),
]


@contextlib.contextmanager
def served(kind: str, folder: Path) -> Iterator[str]:
    """A server of two ranks that serves twelve users, the second rank slowed."""
    subprocess.run([PYTHON, str(HERE / "model.py"), str(folder / kind), kind], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = {"SLOWRANK_SLOW_RANK": "1", "SLOWRANK_SLOW_MS": "60", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": "127.0.0.1"}
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = f"{Path(PYTHON).parent}{os.pathsep}{kept.get('PATH', '')}"
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--load-format", "dummy", "--served-model-name", kind, "--enforce-eager"]
    arguments += ["--max-model-len", "1024", "--max-num-seqs", "32", "--data-parallel-size", "2", "--api-server-count", "1"]
    with (folder / "log").open("w") as log:
        command = [str(Path(PYTHON).parent / "vllm"), "serve", str(folder / kind), *arguments]
        server = subprocess.Popen(command, env=kept | own | quiet | {"PATH": path}, stdout=log, stderr=subprocess.STDOUT)
    url, done = f"http://127.0.0.1:{port}", threading.Event()
    users = [threading.Thread(target=use, args=(url, kind, done, seed)) for seed in range(12)]
    try:
        wait(server, url, folder / "log")
        for user in users:
            user.start()
        time.sleep(5)
        yield url
    finally:
        done.set()
        for user in users:
            if user.ident is not None:
                user.join(60)
        server.terminate()
        server.wait(60)


def wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text()[-2000:]
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        time.sleep(1)
    raise AssertionError(f"not up after {START_S:.0f} s: {log.read_text()[-2000:]}")


def use(url: str, model: str, done: threading.Event, seed: int) -> None:
    rng = random.Random(seed)
    with httpx.Client(base_url=url, timeout=60) as client:
        while not done.is_set():
            body = {"model": model, "prompt": [rng.randrange(10, 250) for _ in range(32)], "max_tokens": 64, "ignore_eos": True}
            with contextlib.suppress(httpx.HTTPError):
                client.post("/v1/completions", json=body)


def slowrank(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run([sys.executable, "-m", "slowrank", *arguments, "--format", "json"], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def test_a_slow_dense_rank_is_named(tmp_path: Path) -> None:
    """Its own steps say so, though request counts are alike."""
    with served("dense", tmp_path) as url:
        code, report = slowrank("diagnose", url, "--for", "25s")
    verdict = report["engines"][0]["verdict"]
    assert (code, verdict["cause"], verdict["ranks"]) == (1, "slow_rank", [1])


def test_in_a_lockstep_nobody_is_named_and_the_fixed_delay_is_no_slow_card(tmp_path: Path) -> None:
    """All steps are equally long: insufficient evidence. Pinned prompts are computed on the rank that they are pinned to, and do not name
    the other one."""
    with served("moe", tmp_path) as url:
        code, report = slowrank("diagnose", url, "--for", "25s", "--clock", "lockstep")
        assert (code, report["engines"][0]["verdict"]["class"], report["engines"][0]["verdict"]["ranks"]) == (
            3,
            "insufficient-evidence",
            [],
        )
        _, probed = slowrank("probe", url, "--tokens", "900", "--yes")
    assert probed["ranks"] in ([], [1])
