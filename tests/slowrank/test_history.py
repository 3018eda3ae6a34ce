"""`slowrank diagnose --prometheus`: options, exit codes, and what is said of engines that could not be read."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

from collector.errors import ConfigError
from collector.model import Problem
from collector.prometheus.errors import PrometheusError
from collector.prometheus.read import Answer, NothingError
from slowrank.app import app
from slowrank.history import Question, moment, server_of

URL = "http://prometheus:9090"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diagnose", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "1h"), "--since: only with --prometheus URL"),
        (("h:1", "--card", "H200"), "--card: only with --prometheus URL"),
        (("h:1", "--prometheus", URL), "--prometheus stands alone"),
        (("--for", "10s", "--prometheus", URL), "--prometheus stands alone"),
        (("--prometheus", "prometheus:9090"), "is no http(s) base URL"),
        (("--prometheus", URL, "--match", "x"), "no label matcher at 'x'"),
        (("--prometheus", URL, "--at", "yesterday"), "--at 'yesterday' is no time"),
        (("--prometheus", URL, "--at", "1767225600000"), "unix times are in seconds"),
        (("--prometheus", URL, "--token-env", "NO_SUCH_TOKEN"), "there is no such environment variable"),
        (("--prometheus", URL, "--token-file", "/no/such"), "--token-file /no/such: No such file"),
        (("--prometheus", "https://p", "--ca-file", "/no/such"), "no certificates can be read from it"),
    ],
)
def test_options_that_cannot_mean_anything(arguments: tuple[str, ...], said: str) -> None:
    """Exit 2, and the option is named."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_times() -> None:
    """ISO 8601 with or without a zone, unix seconds, or now."""
    now = 1_767_300_000.0
    assert moment(None, now) == now
    for text in ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00"):
        assert moment(text, now) == 1_767_225_600.0
    assert moment("1767225600.5", now) == 1_767_225_600.5


def test_a_token_comes_from_a_variable_or_a_file(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never from the command line; both at once is a slip; a file's final newline is none of it."""
    file = tmp_path / "token"
    file.write_text("abc\n")
    monkeypatch.setenv("TOKEN", "xyz")
    assert server_of(Question(URL, token_file=file)).token == "abc"
    assert server_of(Question(URL, token_env="TOKEN")).token == "xyz"
    with pytest.raises(ConfigError, match="give one of them"):
        server_of(Question(URL, token_env="TOKEN", token_file=file))


@pytest.mark.parametrize(("error", "code"), [(PrometheusError("p: broken"), 4), (NothingError("p: nothing"), 3)])
def test_a_server_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    """No answer is 4; an answer without engines is 3. One line on stderr."""

    async def fail(*_: object) -> Answer:
        raise error

    monkeypatch.setattr("collector.prometheus.read.read", fail)
    done = run("--prometheus", URL)
    assert done.exit_code == code
    assert done.stderr == f"slowrank: {error}\n"


def test_engines_that_could_not_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named, and are insufficient evidence."""

    async def answer(*_: object) -> Answer:
        return Answer((), (Problem("p", "4 servers hold rank 0", "give a label"),))

    monkeypatch.setattr("collector.prometheus.read.read", answer)
    done = run("--prometheus", URL)
    assert done.exit_code == 3
    assert "p: 4 servers hold rank 0; give a label" in done.stderr
