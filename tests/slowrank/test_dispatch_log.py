"""`slowrank diagnose --dispatch-log FILE`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collector import signals
from collector.errors import ConfigError
from collector.model import Engine, Window
from slowrank.diagnosing import with_dispatch_log

LOG = Path(__file__).parents[1] / "field_cases" / "01-deepxtrace-ep16-slow-rank4.log"


def window(name: str = "h:1", ranks: int = 16) -> Window:
    return Window(Engine(name, "sglang"), np.arange(4.0), tuple(range(ranks)), {}, 3)


def test_the_log_is_of_the_one_engine() -> None:
    """Its matrix joins the window; without a log nothing changes."""
    (found,) = with_dispatch_log([window()], LOG)
    assert found.has(signals.DISPATCH_WAIT, signals.DISPATCH_AWAITED)
    (same,) = with_dispatch_log([window()], None)
    assert not same.values


def test_several_engines_cannot_share_a_log() -> None:
    """It would be given to the wrong one."""
    with pytest.raises(ConfigError, match="is of one engine, and 2 were read"):
        with_dispatch_log([window("a:1"), window("b:1")], LOG)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The option, the path and the system's words."""
    with pytest.raises(ConfigError, match=r"--dispatch-log .*none\.log: No such file"):
        with_dispatch_log([window()], tmp_path / "none.log")


def test_another_log_is_a_problem_and_no_end(tmp_path: Path) -> None:
    """The diagnosis goes on without it and says why."""
    other = tmp_path / "other.log"
    other.write_text("nothing to see\n")
    (found,) = with_dispatch_log([window()], other)
    assert not found.values
    assert "no complete dump" in str(found.problems[-1])
