"""A foreign package named like one of our rooms is told, not imported."""

import os
import subprocess
import sys
from pathlib import Path

from slowrank.selfcheck import ROOMS, stranger


def test_our_own_rooms_pass() -> None:
    """Nothing to tell when each room lies beside slowrank."""
    assert stranger() is None


def test_a_missing_room_is_told() -> None:
    """A room that cannot be found at all is named."""
    assert "was imported from nowhere" in str(stranger(("no_such_room_at_all",)))


def test_a_foreign_collector_on_the_path_ends_the_command(tmp_path: Path) -> None:
    """PYTHONPATH with another `collector` exits with the two places and the cure, without a traceback."""
    foreign = tmp_path / "collector"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("raise SystemExit('imported')\n")
    script = "import sys; sys.path.insert(0, sys.argv.pop()); from slowrank.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 2
    assert f"collector was imported from {foreign}, not from " in done.stderr
    assert "unset PYTHONPATH" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_rooms_are_checked() -> None:
    """The check covers every room but slowrank itself."""
    assert set(ROOMS) == {"collector", "diagnose", "dashboards", "workload"}
