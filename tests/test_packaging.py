"""What is shipped: five import names and nothing else, with the runbooks inside."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from diagnose.rules import load

ROOT = Path(__file__).parent.parent
ROOMS = {"collector", "diagnose", "dashboards", "workload", "slowrank"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> list[str]:
    """The file names in a wheel built from this tree."""
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


def test_the_wheel_holds_exactly_the_five_rooms(wheel):
    """No tests, no benchmarks, no forgotten room."""
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == ROOMS


def test_the_wheel_holds_every_runbook_and_every_module(wheel):
    """What `slowrank explain` prints ships with the rule, and no module of the tree is left out."""
    assert {f"diagnose/rules/{rule_id}.md" for rule_id in load()} <= set(wheel)
    tree = {str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert tree <= set(wheel)


def test_the_wheel_holds_the_confidences(wheel):
    """The table that a stated confidence is looked up in is data, and ships."""
    assert "diagnose/calibration.json" in wheel


def test_no_other_distribution_owns_the_rooms():
    """The import names are generic: another distribution that ships one would silently overwrite ours."""
    owners = metadata.packages_distributions()
    assert {room: set(owners.get(room, ["slowrank"])) for room in ROOMS} == {room: {"slowrank"} for room in ROOMS}


def test_tests_shadow_nothing():
    """No __init__.py under tests: a package tests/collector would hide the room on a wheel install."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_the_version_is_the_newest_of_the_changelog():
    """One version, in pyproject.toml; the changelog's newest release says the same."""
    newest = re.search(r"^## \[(\d[^]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == metadata.version("slowrank")
