"""`slowrank alert test` against receivers on loopback: what they get, what is printed, which code."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from slowrank.app import app

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """Keeps what it is posted; answers 200, or 403 under /no."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                self.send_response(403 if self.path.startswith("/no") else 200)
                self.end_headers()
                self.wfile.write(b"invalid_token" if self.path.startswith("/no") else b"ok")

            def log_message(self, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def bodies(self, path: str) -> list[Any]:
        return [json.loads(body) for p, _, body in self.got if p == path]


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


def run(*arguments: str):
    return CliRunner().invoke(app, ["alert", "test", "--for", "10ms", *arguments])


def test_every_kind_gets_a_start_and_an_end(receiver, tmp_path):
    """Two messages each, of one incident; signed for the webhook; 0, and a line per answer."""
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "slack").write_text(f"{receiver.url}/slack")
    (tmp_path / "pd").write_text("R0UT1NGKEY")
    done = run(
        *("--alertmanager", receiver.url, "--webhook", f"{receiver.url}/hook", "--webhook-key-file", str(tmp_path / "key")),
        *("--slack-url-file", str(tmp_path / "slack"), "--pagerduty-key-file", str(tmp_path / "pd")),
        *("--pagerduty-url", f"{receiver.url}/pd", "--severity", "ticket"),
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split()[1] for line in lines] == ["firing"] * 4 + ["resolved"] * 4
    assert all(" taken in " in line for line in lines)
    assert sorted(line.split()[0] for line in lines[:4]) == ["alertmanager", "pagerduty", "slack", "webhook"]
    fired, over = receiver.bodies("/hook")
    assert (fired["status"], over["status"]) == ("firing", "resolved")
    assert fired["commonLabels"] == over["commonLabels"]
    assert (fired["commonLabels"]["alertname"], fired["commonLabels"]["severity"]) == ("slowrank_test", "ticket")
    assert "This is a test" in fired["commonAnnotations"]["description"]
    assert [e["event_action"] for e in receiver.bodies("/pd")] == ["trigger", "resolve"]
    assert len(receiver.bodies("/api/v2/alerts")) == len(receiver.bodies("/slack")) == 2
    _, headers, body = next(post for post in receiver.got if post[0] == "/hook")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mac = hmac.new(base64.b64decode(KEY.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()


def test_one_that_does_not_take_it_is_1_and_says_why_without_the_secret(receiver, tmp_path):
    """The others still get theirs."""
    (tmp_path / "slack").write_text(f"{receiver.url}/no/T0PSECRET")
    done = run("--slack-url-file", str(tmp_path / "slack"), "--alertmanager", receiver.url)
    assert done.exit_code == 1
    assert "answered 403: invalid_token" in done.output
    assert "T0PSECRET" not in done.output
    assert len(receiver.bodies("/api/v2/alerts")) == 2


def test_nobody_there_is_1():
    """With the address that was tried."""
    done = run("--alertmanager", "http://127.0.0.1:9")
    assert done.exit_code == 1
    assert "127.0.0.1:9 cannot be reached" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no receiver is given"),
        (["--alertmanager", "h:9093"], "write it as https://host/path"),
        (["--slack-url-file", "/none"], "/none: the secret cannot be read"),
        (["--webhook-key-file", "/none"], "add --webhook URL"),
        (["--pagerduty-url", "http://h"], "add --pagerduty-key-file FILE"),
        (["--alertmanager", "http://h", "--for", "soon"], "is no duration"),
    ],
)
def test_a_slip_is_2(arguments, said):
    """In words, with what to write."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr
