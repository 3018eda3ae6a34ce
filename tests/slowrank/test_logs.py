"""`slowrank diagnose --log`: files of engines' logs to reports, and what is said of files that hold nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collector.errors import ConfigError
from slowrank.app import app
from slowrank.logs import read_log

CASES = Path(__file__).parents[1] / "field_cases"
LINE = "[2026-03-17 17:{m:02d}:{s:02d} DP{r} TP{r}] Decode batch, #running-req: 12, gen throughput (token/s): 240.0, #queue-req: 0\n"


def lines(minute: int) -> str:
    return "".join(LINE.format(m=minute, s=s, r=r) for s in range(0, 60, 2) for r in range(4))


def test_a_log_is_diagnosed_and_says_what_it_lacks(tmp_path: Path) -> None:
    """Level ranks: nobody is named, exit code 3, and the report names the pages' signals that a log has not."""
    log = tmp_path / "scheduler.log"
    log.write_text(lines(35))
    done = CliRunner().invoke(app, ["diagnose", "--log", str(log), "--format", "json"])
    engine = json.loads(done.stdout)["engines"][0]
    assert done.exit_code == 3
    assert (engine["engine"], engine["kind"], engine["ranks"]) == (str(log), "sglang", 4)
    assert engine["step_time"] == pytest.approx(0.05)
    assert engine["verdict"]["class"] == "insufficient-evidence"
    assert "sync_wait" in {missing["signal"] for missing in engine["verdict"]["missing"]}


def test_rotated_files_are_one_log(tmp_path: Path) -> None:
    """Oldest first, joined by a comma: one window over both."""
    old, new = tmp_path / "s.log.1", tmp_path / "s.log"
    old.write_text(lines(35))
    new.write_text(lines(36))
    window = read_log(f"{old},{new}", None)
    assert window.end - window.start == pytest.approx(118.0)
    assert not any("older" in str(problem) for problem in window.problems)
    assert any("older" in str(problem) for problem in read_log(f"{new},{old}", None).problems)


def test_the_last_seconds_of_a_log(tmp_path: Path) -> None:
    """--for counts back from its end."""
    log = tmp_path / "s.log"
    log.write_text(lines(35))
    window = read_log(str(log), 20.0)
    assert 15.0 < window.end - window.start <= 20.0


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.glob("*.log") if not path.name.startswith("01")))
def test_excerpts_of_the_field_blame_no_card(case: str) -> None:
    """A few lines each: insufficient evidence, and no rank is named."""
    done = CliRunner().invoke(app, ["diagnose", "--log", str(CASES / case), "--format", "json"])
    verdict = json.loads(done.stdout)["engines"][0]["verdict"]
    assert (verdict["class"], verdict["ranks"]) == ("insufficient-evidence", [])


def test_files_that_hold_nothing_are_errors(tmp_path: Path) -> None:
    """A file that is not there, one without a report, and nothing to read at all: exit code 2 and the next step."""
    empty = tmp_path / "empty.log"
    empty.write_text("INFO: started\n")
    with pytest.raises(ConfigError, match="holds no line of a batch"):
        read_log(str(empty), None)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_log(str(tmp_path / "none.log"), None)
    done = CliRunner().invoke(app, ["diagnose"])
    assert done.exit_code == 2
    assert "give a TARGET" in done.stderr
