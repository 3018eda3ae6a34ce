"""`slowrank serve` as a process: it says where, reloads at SIGHUP, and ends cleanly at SIGTERM."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.beside(row=1)]


def test_it_serves_reloads_and_ends(tmp_path):
    """A good reload, a refused one, and an end with exit code 0 that leaves the incident file free."""
    config = tmp_path / "slowrank.toml"
    good = '[service]\nlisten = "127.0.0.1:0"\nlog_format = "json"\n[[engines]]\nnodes = ["127.0.0.1:9"]\n'
    config.write_text(good)
    process = subprocess.Popen([sys.executable, "-m", "slowrank", "serve", "--config", str(config)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None

        def until(event: str) -> dict[str, str]:
            for line in process.stderr or ():
                said: dict[str, str] = json.loads(line)
                if event in said["event"]:
                    return said
            raise AssertionError(f"it ended without {event!r}")

        url = until("slowrank serves")["url"]
        with urllib.request.urlopen(url + "healthz", timeout=30) as reply:
            assert reply.status == 200
        config.write_text(good + '[[engines]]\nnodes = ["127.0.0.1:10"]\n')
        process.send_signal(signal.SIGHUP)
        until("the new configuration is in force")
        config.write_text("x = 1")
        process.send_signal(signal.SIGHUP)
        assert "no key 'x'" in until("refused")["why"]
        with urllib.request.urlopen(url + "api/v1/engines", timeout=30) as reply:
            assert len(json.load(reply)["engines"]) == 2
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)
        if process.stderr is not None:
            process.stderr.close()
    assert (tmp_path / "slowrank.db").exists()


def test_a_port_that_is_taken_is_told(tmp_path):
    """Exit code 2 and a sentence, not a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = tmp_path / "slowrank.toml"
        config.write_text(f'[service]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n[[engines]]\nnodes = ["127.0.0.1:9"]\n')
        done = subprocess.run(
            [sys.executable, "-m", "slowrank", "serve", "--config", str(config)], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert "give an address of this machine and a free port" in done.stderr
    assert "Traceback" not in done.stderr
