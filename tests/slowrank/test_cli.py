"""The front door: it teaches, it answers at once, and every way out has its code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from diagnose.rules import load
from slowrank.app import EXAMPLES, app
from slowrank.cli import main

HEAVY = ("numpy", "pandas", "scipy", "fastapi", "uvicorn", "httpx", "msgspec", "grafanalib", "structlog", "yaml")


def slowrank(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "slowrank", *arguments], capture_output=True, text=True, check=False)


def test_help_teaches() -> None:
    """What it does, the commands in the order of use, examples to copy."""
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    order = [
        "Says which",
        "Find the slow rank:",
        "diagnose",
        "doctor",
        "Watch engines:",
        "serve      ",
        "Keep and understand:",
        "record",
        "explain",
        "demo",
        "workload",
        "Examples:",
    ]
    places = [done.output.index(part) for part in order]
    assert places == sorted(places)
    assert all(example in done.output for example, _ in EXAMPLES)


def test_examples_name_commands_that_exist() -> None:
    """No example teaches a command that is not there."""
    commands = {c.name or (c.callback.__name__ if c.callback else "") for c in app.registered_commands} | {
        "workload",
        "alert",
        "dashboards",
        "rules",
    }
    assert {example.split()[1] for example, _ in EXAMPLES} <= commands


def test_no_arguments_show_the_help() -> None:
    """Who types only the name is taught, not scolded."""
    done = CliRunner().invoke(app, [])
    assert "Find the slow rank" in done.output


@pytest.mark.parametrize("arguments", [["--help"], ["diagnose", "--help"], ["serve", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    """Help answers at once because the libraries of the work itself are not imported for it."""
    script = f"""
import sys
sys.argv = ["slowrank", *{arguments!r}]
from slowrank.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", [name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "loaded: []", done.stderr


def test_version() -> None:
    """The version is the distribution's."""
    assert re.fullmatch(r"slowrank \d+\.\d+\.\d+\n", CliRunner().invoke(app, ["--version"]).output)


@pytest.mark.parametrize(
    "arguments",
    [
        ["diagnos"],
        ["diagnose"],
        ["diagnose", "h:1", "--for", "3x"],
        ["diagnose", "h:1", "--format", "xml"],
        ["record", "h:1"],
        ["explain", "slow_rnk"],
        ["diagnose", "./no-such-file.slowrank"],
        ["diagnose", "h:1", "--api-key-env", "SLOWRANK_NO_SUCH_VARIABLE"],
        ["demo", "--ranks", "2"],
    ],
)
def test_usage_errors_exit_with_2_and_no_traceback(arguments: list[str]) -> None:
    """A slip of the user is told in words on stderr."""
    done = slowrank(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_a_wrong_rule_names_the_nearest() -> None:
    """The message holds what was written and what was probably meant."""
    done = CliRunner().invoke(app, ["explain", "slow_rnk"])
    assert done.stderr == "slowrank: no rule is called 'slow_rnk'; did you mean slow_rank?\n"


def test_explain_lists_every_rule() -> None:
    """Without a rule, all rules with their titles."""
    done = CliRunner().invoke(app, ["explain"])
    assert done.exit_code == 0
    for rule in load().values():
        assert re.search(rf"^  {rule.id} +{re.escape(rule.title)}$", done.output, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(load()))
def test_explain_tells_all_about_a_rule(name: str) -> None:
    """Title, class, needs, each limit with its reason, remedy and the whole runbook."""
    rule = load()[name]
    text = CliRunner().invoke(app, ["explain", name]).output
    flat = " ".join(text.split())
    assert text.startswith(f"{name} ({rule.klass.value}, {rule.severity.value})\n{rule.title}\n")
    assert all(f"- {need}: " in text for need in rule.needs)
    for limit, threshold in rule.thresholds.items():
        assert f"{limit} = {threshold.value:g} {threshold.unit}: {' '.join(threshold.why.split())}" in flat
    assert " ".join(rule.remedy.split()) in flat
    assert rule.runbook.rstrip() in text


def test_nobody_there_is_4_and_early() -> None:
    """A refused connection ends the command with the address and what to check, long before --for is over."""
    done = slowrank("diagnose", "127.0.0.1:9", "--for", "10m")
    assert done.returncode == 4
    assert done.stdout == ""
    assert re.fullmatch(r"slowrank: no target gives a usable page: http://127\.0\.0\.1:9/v1/loads: nothing listens there;.*\n", done.stderr)


def test_a_broken_capture_is_2(tmp_path: Path) -> None:
    """A file that is no capture is named."""
    path = tmp_path / "noise.slowrank"
    path.write_bytes(b"\x00\x01 this is no capture")
    done = slowrank("diagnose", str(path))
    assert done.returncode == 2
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_defect_of_our_own_never_reads_as_a_finding(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An error that nobody foresaw shows its traceback and exits with 70, which is none of the verdicts."""

    def break_down() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("diagnose.rules.load", break_down)
    monkeypatch.setattr(sys, "argv", ["slowrank", "explain"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70
    assert "RuntimeError: a defect" in capsys.readouterr().err
