"""The configuration: what is right is taken, what is wrong is named with the nearest right thing, nothing is guessed."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from collector.errors import ConfigError
from slowrank.app import app
from slowrank.config.load import load
from slowrank.config.model import Config
from slowrank.config.show import host_only, show
from slowrank.service.plan import prepare

ENGINE = '[[engines]]\nnodes = ["a:1"]\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "slowrank.toml"
    path.write_text(text)
    return path


def planned(tmp_path: Path, text: str, environ: dict[str, str] | None = None):
    return prepare(load(written(tmp_path, text), environ or {}))


def test_the_environment_beats_the_file_beats_the_default(tmp_path):
    """A value comes from the strongest place that has it, and it is shown which."""
    loaded = load(written(tmp_path, '[scrape]\nloads = "2s"\nmetrics = "7s"\n'), {"SLOWRANK_SCRAPE__LOADS": "3s"})
    assert (loaded.config.scrape.loads, loaded.config.scrape.metrics, loaded.config.diagnosis.every) == (3.0, 7.0, 10.0)
    lines = {line.split(" = ")[0]: line.rsplit("# ", 1)[1] for line in show(loaded)}
    assert lines["scrape.loads"] == "SLOWRANK_SCRAPE__LOADS"
    assert lines["scrape.metrics"] == "file"
    assert lines["diagnosis.every"] == "default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[servise]\n", r"no key 'servise' in the top level; did you mean 'service'"),
        ('[service]\nlisen = "x"\n', r"no key 'lisen' in \[service\]; did you mean 'listen'"),
        ('[[engines]]\nnodes = ["a:1"]\n[[engines]]\nnode = ["b:1"]\n', r"no key 'node' in \[engines\[1\]\]; did you mean 'nodes'"),
        ('[[alerts.webhook]]\nurl = "http://a"\nkeyfile = "x"\n', r"no key 'keyfile' in \[alerts.webhook\[0\]\]; did you mean 'key_file'"),
        ('[scrape]\nloads = "5"\n', r"scrape.loads: '5' is no duration; write it as 20s"),
        ("[scrape]\nloads = 5\n", r"scrape.loads: 5 is no duration"),
        ("[scrape]\nbudget = 7.0\n", r"scrape.budget = 7.0: .*less than or equal to 1"),
        ("engines = 3\n", r"engines = 3: .*tuple"),
        ("x =\n", r"is not TOML"),
        ('[[engines]]\nname = "x"\n', r"engines\[0\].nodes: Field required"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, said):
    """File, key, value and the nearest valid key."""
    with pytest.raises(ConfigError, match=said) as error:
        load(written(tmp_path, text), {})
    assert str(error.value).startswith(str(tmp_path))


def test_a_variable_that_sets_nothing_is_refused(tmp_path):
    """A misspelt variable is as silent as a misspelt key would be; one without a table's name is not ours."""
    with pytest.raises(ConfigError, match=r"SLOWRANK_SCRAPE__LOAD: sets no key .*did you mean 'SLOWRANK_SCRAPE__LOADS'"):
        load(None, {"SLOWRANK_SCRAPE__LOAD": "1s"})
    assert load(None, {"SLOWRANK_TOKEN": "x"}).config == Config()


def test_a_wrong_variable_is_named_as_the_place(tmp_path):
    """The file is not blamed for what the environment says."""
    with pytest.raises(ConfigError, match=r"^SLOWRANK_SCRAPE__BUDGET: scrape.budget = '2'"):
        load(written(tmp_path, ""), {"SLOWRANK_SCRAPE__BUDGET": "2"})


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:9469", "[::1]:9469"])
def test_loopback_needs_no_token(tmp_path, listen):
    """Who is on the machine may read its pages."""
    assert planned(tmp_path, f'[service]\nlisten = "{listen}"\n{ENGINE}').token is None


@pytest.mark.parametrize("listen", ["0.0.0.0:9469", "10.0.0.1:9469", "[::]:9469", "node7:9469"])
def test_beyond_loopback_a_token_is_a_must(tmp_path, listen):
    """It refuses to start, and says how to go on."""
    with pytest.raises(ConfigError, match=r"no token is configured; set service.token_file or service.token_env, or listen on 127.0.0.1"):
        planned(tmp_path, f'[service]\nlisten = "{listen}"\n{ENGINE}')
    (tmp_path / "token").write_text("s3cret-token\n")
    plan = planned(tmp_path, f'[service]\nlisten = "{listen}"\ntoken_file = "token"\n{ENGINE}')
    assert plan.token is not None
    assert plan.token.reveal() == "s3cret-token"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is nothing to watch"),
        ('[service]\nlisten = "x"\n' + ENGINE, "'x': is no address and port"),
        (ENGINE + ENGINE, "a:1 is configured 2 times"),
        ('[[engines]]\nnodes = ["a:1/metrics"]\n', "is one page of an engine"),
        ('[[engines]]\nnodes = ["http://u:p@a:1"]\n', "may not hold a user name"),
        ('[[engines]]\nnodes = ["a:1", "a:1"]\n', "names a node twice"),
        ('[[engines]]\nnodes = ["a:1"]\ntoken_env = "NO_SUCH"\n', "NO_SUCH: there is no such environment variable"),
        ('[[engines]]\nnodes = ["a:1"]\ntoken_env = "A"\ntoken_file = "b"\n', "are both given; keep one"),
        ('[[engines]]\nnodes = ["a:1"]\nca_file = "nope.pem"\n', "nope.pem: cannot be used for TLS"),
        ('[[engines]]\nnodes = ["a:1"]\nkey_file = "k.pem"\n', "give cert_file too"),
        ('[[engines]]\nnodes = ["a:1"]\ngpus = "x"\n', "is no rank=GPU"),
        (ENGINE + "[[alerts.webhook]]\n", "give one of url, url_env and url_file"),
        (ENGINE + "[[alerts.slack]]\n", "needs url_env or url_file"),
        (ENGINE + '[[alerts.alertmanager]]\nurl = "ftp://x"\n', "the address starts with 'ftp'"),
        (
            ENGINE + '[[alerts.alertmanager]]\nurl = "http://a"\nname = "x"\n[[alerts.webhook]]\nurl = "http://b"\nname = "x"\n',
            "two receivers",
        ),
        (ENGINE + '[diagnosis]\nwindow = "2s"\n', "less than four pages"),
        (ENGINE + '[[discovery.http]]\nurl = "file:///etc/passwd"\n', "is no http"),
    ],
)
def test_what_cannot_be_put_in_force_is_told_before_anything_starts(tmp_path, text, said):
    """Addresses, secrets and files are looked at when the plan is made."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        planned(tmp_path, text)


def test_check_says_good_or_wrong_with_the_exit_code(tmp_path):
    """`slowrank serve --check` is what a deployment asks before it restarts anything."""
    good = CliRunner().invoke(app, ["serve", "--check", "--config", str(written(tmp_path, ENGINE))])
    assert (good.exit_code, "1 engines" in good.output) == (0, True)
    bad = CliRunner().invoke(app, ["serve", "--check", "--config", str(written(tmp_path, "x = 1"))])
    assert bad.exit_code == 2


def test_no_secret_is_shown(tmp_path, monkeypatch):
    """`slowrank config` names variables and files, never what they hold; an address that may be a key is cut to its host."""
    monkeypatch.setenv("HOOK", "https://hooks.example/s3cret")
    text = ENGINE + '[[alerts.webhook]]\nurl = "https://hooks.example/s3cret"\n[[alerts.slack]]\nurl_env = "HOOK"\n'
    done = CliRunner().invoke(app, ["config", "--config", str(written(tmp_path, text))])
    assert done.exit_code == 0
    assert 'alerts.webhook[0].url = "https://hooks.example/..."' in done.output
    assert 'alerts.slack[0].url_env = "HOOK"' in done.output
    assert "s3cret" not in done.output


@given(st.text(max_size=200))
def test_any_address_can_be_shown(text):
    """Of whatever stands as an address, no path, query or password is shown."""
    shown = host_only(f"https://user:hunter2@host/{text}?k={text}")
    assert "hunter2" not in shown


@given(st.text(max_size=300))
def test_any_file_is_taken_or_refused(tmp_path_factory, text):
    """No text makes it fail in another way than by saying what is wrong."""
    path = tmp_path_factory.mktemp("any") / "c.toml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with contextlib.suppress(ConfigError):
        load(path, {})
