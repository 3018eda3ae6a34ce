"""`slowrank diagnose` end to end but for the engine: the right exit code, the report on stdout, everything else on stderr."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from collector.capture import CaptureWriter
from collector.errors import CaptureError, ConfigError
from collector.model import Engine, Window
from diagnose.model import Class, EngineDiagnosis, LostTime, Severity, Verdict
from slowrank.app import app
from slowrank.diagnosing import Reading, conclude
from slowrank.exits import UnreachableError
from workload.config import ClusterConfig
from workload.schedule import Scheduled
from workload.virtual_time.recording import Recording
from workload.virtual_time.simulate import simulate

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/report.schema.json").read_text(encoding="utf-8"))


def _window(engine: str) -> Window:
    return Window(Engine(engine, "sglang"), np.arange(3.0), (0, 1), {}, 2)


def _diagnosis(engine: str, klass: Class) -> EngineDiagnosis:
    cause = "context_length_skew" if klass is Class.LOAD else None
    verdict = Verdict(klass, cause, (), 0.9, "Said so.", Severity.NOTE, None, LostTime(None))
    return EngineDiagnosis(Engine(engine, "sglang"), 0.0, 2.0, 2, (), None, verdict, ())


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command with the given verdicts in place of engines; `unreached` and `interrupted` as the reading says."""

    def invoke(*classes: Class, arguments: Sequence[str] = ("h:1",), **reading: Any) -> Result:
        names = [f"engine-{i}" for i in range(len(classes))]
        monkeypatch.setattr("slowrank.diagnosing.read", lambda *_: Reading(tuple(map(_window, names)), **reading))
        monkeypatch.setattr("slowrank.diagnosing.conclude", lambda *_: list(map(_diagnosis, names, classes)))
        return CliRunner().invoke(app, ["diagnose", *arguments])

    return invoke


@pytest.mark.parametrize(
    ("classes", "code"),
    [
        ((Class.HEALTHY,), 0),
        ((Class.LOAD,), 1),
        ((Class.OUTSIDE,), 1),
        ((Class.INSUFFICIENT,), 3),
        ((Class.HEALTHY, Class.INSUFFICIENT), 3),
        ((Class.INSUFFICIENT, Class.LOAD, Class.HEALTHY), 1),
    ],
)
def test_the_exit_code_is_the_verdict(run: Run, classes: tuple[Class, ...], code: int) -> None:
    """0 healthy, 1 finding, 3 insufficient; over several engines the one worth acting on."""
    assert run(*classes).exit_code == code


def test_an_engine_that_did_not_answer_is_4_unless_another_says_more(run: Run) -> None:
    """Silence of one engine outranks health of another, not its finding; stderr names who was silent and why."""
    done = run(Class.HEALTHY, unreached={"other:1": "refused"})
    assert done.exit_code == 4
    assert done.stderr == "slowrank: other:1 did not answer: refused\n"
    assert run(Class.LOAD, unreached={"other:1": "refused"}).exit_code == 1


def test_an_interrupt_shows_what_there_is(run: Run) -> None:
    """Ctrl-C exits with 130 after the partial report."""
    done = run(Class.LOAD, interrupted=True)
    assert done.exit_code == 130
    assert done.stdout.startswith("LOAD: context_length_skew")
    assert "interrupted" in done.stderr


def test_text_is_plain_when_piped_and_one_report_per_engine(run: Run) -> None:
    """Without a terminal no colour; several engines are separated."""
    done = run(Class.LOAD, Class.HEALTHY)
    assert "\x1b" not in done.stdout
    assert done.stdout.index("LOAD") < done.stdout.index("-" * 40) < done.stdout.index("HEALTHY")


def test_json_is_the_published_contract_and_nothing_else(run: Run) -> None:
    """stdout is one JSON document that fits the schema."""
    done = run(Class.LOAD, Class.INSUFFICIENT, arguments=("h:1", "--format", "json"), unreached={"x": "y"})
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    assert [e["verdict"]["class"] for e in document["engines"]] == ["load", "insufficient-evidence"]


def test_markdown_for_tickets(run: Run) -> None:
    """stdout is one Markdown document with a part for each engine; the exit code is the verdict's."""
    done = run(Class.LOAD, Class.HEALTHY, arguments=("h:1", "--format", "markdown"))
    assert done.exit_code == 1
    assert [line[:9] for line in done.stdout.splitlines() if line.startswith("## ")] == ["## LOAD: ", "## HEALTH"]
    assert "\n\n---\n\n## HEALTHY" in done.stdout


def test_html_for_a_browser(run: Run) -> None:
    """stdout is one HTML file and nothing else, even when an engine did not answer."""
    done = run(Class.LOAD, Class.INSUFFICIENT, arguments=("h:1", "--format", "html"), unreached={"x": "y"})
    assert done.stdout.startswith("<!DOCTYPE html>")
    assert done.stdout.endswith("</html>\n")
    assert done.stdout.count("<article") == 2
    assert "x did not answer: y" in done.stderr
    assert "No engine was read" in run(arguments=("h:1", "--format", "html"), unreached={"x": "y"}).stdout


@pytest.mark.parametrize(("error", "code"), [(ConfigError("no\x1b[2J"), 2), (CaptureError("bad"), 2), (UnreachableError("gone"), 4)])
def test_errors_are_one_line_on_stderr(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int) -> None:
    """No traceback, no control characters, the documented code."""

    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr("slowrank.diagnosing.read", fail)
    done = CliRunner().invoke(app, ["diagnose", "h:1"])
    assert done.exit_code == code
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr


def test_ctrl_c_before_anything_is_read_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """One word on stderr, no traceback."""

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slowrank.diagnosing.read", interrupt)
    done = CliRunner().invoke(app, ["diagnose", "h:1"])
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "slowrank: interrupted\n")


def _baselines(monkeypatch: pytest.MonkeyPatch, found: Sequence[str], past: Sequence[str]) -> list[tuple[str, str | None]]:
    """Which past each window was judged against."""
    judged: list[tuple[str, str | None]] = []

    def remember(window: Window, baseline: Window | None, twins: Sequence[Window]) -> None:
        assert twins == ()  # these engines do not say what they serve
        judged.append((window.engine.id, baseline.engine.id if baseline else None))

    monkeypatch.setattr("slowrank.diagnosing.diagnose", remember)
    monkeypatch.setattr("slowrank.diagnosing.replay", lambda *_: list(map(_window, past)))
    conclude(list(map(_window, found)), Path("past.slowrank") if past else None)
    return judged


def test_a_baseline_is_of_the_same_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine is held against its own past; without a baseline against none."""
    assert _baselines(monkeypatch, ["a", "b"], ["b", "a"]) == [("a", "a"), ("b", "b")]
    assert _baselines(monkeypatch, ["a"], []) == [("a", None)]


def test_a_lone_baseline_serves_a_lone_engine_under_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The healthy capture of a laptop's port-forward is still that engine's past."""
    assert _baselines(monkeypatch, ["localhost:1"], ["host:30000"]) == [("localhost:1", "host:30000")]


def test_a_baseline_of_other_engines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judging an engine by another one's past would invent slowness."""
    with pytest.raises(ConfigError, match="the baseline holds a, b, but not c"):
        _baselines(monkeypatch, ["c"], ["a", "b"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a:1", "b:1", "--hardware", "n:9400"], "one by one"),
        (["CAPTURE", "--procfs"], "a capture holds what was read"),
        (["a:1", "--gpus", "x"], "no rank=GPU"),
        (["a:1", "--hardware", "http://me:secret@n:9400"], "may not hold a user name"),
    ],
)
def test_options_of_machines_that_make_no_sense_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    """Before anything is read, with the way out; a password that was typed is not repeated."""
    capture = tmp_path / "c.slowrank"
    with CaptureWriter(capture, created=0.0):
        pass
    result = CliRunner().invoke(app, ["diagnose", *(str(capture) if word == "CAPTURE" else word for word in arguments)])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "secret" not in result.stderr


def test_a_capture_with_cards_is_joined_as_the_user_says(tmp_path: Path) -> None:
    """A simulated engine with a hot card 1: rank 1's by order, rank 0's if the user says that the cards are crossed."""
    with Recording(tmp_path / "c.slowrank") as recording:
        simulate(ClusterConfig(ranks=4), [Scheduled("gpu_throttled", 1, 5.0, 40.0, 1.0)], 40.0, recording, cards=recording.cards)
    for more, rank in (([], 1), (["--gpus", "0=1,1=0"], 0)):
        result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "c.slowrank"), "--for", "25s", "--format", "json", *more])
        verdict = json.loads(result.stdout)["engines"][0]["verdict"]
        assert (verdict["cause"], verdict["ranks"]) == ("gpu_throttled", [rank])
