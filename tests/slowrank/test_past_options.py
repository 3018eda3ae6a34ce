"""Options of a reading out of Prometheus: what cannot be meant is a usage error that says how to write it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from collector.errors import ConfigError
from slowrank.app import app
from slowrank.past import parse_moment

HERE = ["--prometheus", "http://127.0.0.1:9"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "1h"], "--since is about a Prometheus server"),
        (["--match", 'a="b"'], "--match is about a Prometheus server"),
        ([*HERE, "--match", "nonsense"], "is no label matcher"),
        ([*HERE, "--at", "yesterday"], "is no moment"),
        ([*HERE, "--at", "2026-01-01T00:00:00"], "has no time zone"),
        ([*HERE, "--at", "5000000000"], "not between 1970 and 2100"),
        ([*HERE, "--token-env", "NO_SUCH_TOKEN"], "no such environment variable"),
        ([*HERE, "--token-file", "/no/such/file"], "cannot be read"),
        ([*HERE, "--token-env", "A", "--token-file", "b"], "give one of them"),
        ([*HERE, "--key-file", "k.pem"], "--cert-file"),
        (["--prometheus", "http://user:hunter2@p"], "may not hold a user name"),
    ],
)
def test_an_option_that_cannot_be_meant_is_a_usage_error(arguments, said):
    """Exit code 2, the option and the next step; no password is repeated."""
    result = CliRunner().invoke(app, ["diagnose", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "hunter2" not in result.stderr


def test_a_server_that_nobody_runs_is_unreachable():
    """Port 9 of this machine: exit code 4, and what to look at."""
    result = CliRunner().invoke(app, ["diagnose", *HERE])
    assert result.exit_code == 4
    assert "nothing listens there; is the server up" in " ".join(result.stderr.split())


def test_a_moment_is_iso_or_unix_seconds():
    """Both spell the same second; a zone other than UTC counts."""
    assert parse_moment("2026-01-01T00:00:00Z") == parse_moment("1767225600") == parse_moment("2026-01-01T01:00:00+01:00") == 1767225600.0
    with pytest.raises(ConfigError, match="is no moment"):
        parse_moment("1.2.3")
