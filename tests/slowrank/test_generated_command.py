"""`slowrank dashboards` and `slowrank rules`."""

from __future__ import annotations

import json

import httpx
import pytest
from typer.testing import CliRunner

from collector.errors import ConfigError
from dashboards import build
from slowrank.app import app
from slowrank.exits import UnreachableError
from slowrank.grafana import push


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(("command", "count"), [("dashboards", 5), ("rules", 1)])
def test_build_then_check(tmp_path, command, count):
    """What was built is as it should be; a file that was changed or lost is named, with the command that repairs it."""
    assert run(command, "check", str(tmp_path)).exit_code == 1
    built = run(command, "build", str(tmp_path))
    assert built.exit_code == 0
    assert built.output.count("wrote ") == count
    assert run(command, "check", str(tmp_path)).exit_code == 0
    file = min(tmp_path.iterdir())
    file.write_text("changed by hand")
    checked = run(command, "check", str(tmp_path))
    assert checked.exit_code == 1
    assert f"{file} differs; run `slowrank {command} build {tmp_path}`" in " ".join(checked.output.split())


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path):
    """The folder, the reason, and what to do."""
    (tmp_path / "file").write_text("")
    answer = run("rules", "build", str(tmp_path / "file"))
    assert answer.exit_code == 2
    assert "name a folder of your own" in answer.output


def test_runbooks_that_are_no_address_are_refused(tmp_path):
    """An alert never gets a link that cannot be followed."""
    answer = run("rules", "build", str(tmp_path), "--runbooks", "javascript:alert(1)")
    assert answer.exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.write_text("glsa_key\n")
    return file


def test_push_sends_every_dashboard_over_the_old_one(token):
    """With the token from the file, and overwriting what an earlier version sent."""
    got = []

    def grafana(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer glsa_key"
        got.append((request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={"status": "success"})

    pages = build.pages().values()
    taken = list(push("http://grafana:3000/sub/", token, pages, httpx.MockTransport(grafana)))
    assert taken == [(page["uid"], f"http://grafana:3000/sub/d/{page['uid']}") for page in pages]
    assert {path for path, _ in got} == {"/sub/api/dashboards/db"}
    assert [body["dashboard"] for _, body in got] == list(pages)
    assert all(body["overwrite"] for _, body in got)


@pytest.mark.parametrize(
    ("status", "then"), [(401, "role Editor"), (403, "role Editor"), (404, "address"), (412, "provision"), (500, "log")]
)
def test_a_refusal_says_what_to_do(token, status, then):
    """And never shows the token."""
    transport = httpx.MockTransport(lambda _: httpx.Response(status))
    with pytest.raises(ConfigError, match=then) as refused:
        list(push("http://grafana:3000", token, build.pages().values(), transport))
    assert "glsa_key" not in str(refused.value)


def test_a_grafana_that_does_not_answer_is_unreachable(token):
    """Its own exit code: nothing is wrong with the command."""

    def down(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no", request=request)

    with pytest.raises(UnreachableError, match="does not answer"):
        list(push("http://grafana:3000", token, build.pages().values(), httpx.MockTransport(down)))


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff"])
def test_a_file_without_a_token_is_refused(tmp_path, content):
    """Before anything is sent."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="--token-file"):
        list(push("http://grafana:3000", file, [], httpx.MockTransport(lambda _: pytest.fail("sent"))))
