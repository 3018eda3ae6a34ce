"""Commands that documents show are commands that slowrank takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from slowrank.app import app

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def shown(text: str) -> list[list[str]]:
    """The words of each command of ours in the blocks of code, less what a shell does with its output."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [part.split(" > ")[0] for block in blocks for line in block.splitlines() for part in line.split(";")]
    words = [shlex.split(line, comments=True) for line in lines if re.match(r"\s*(\.venv/bin/)?slowrank ", line)]
    return [found[1:] for found in words]


def test_commands_are_found():
    """In a block, with a variable's or a path's prefix or none, cut at the comment; not in prose."""
    text = "slowrank serve x\n```\n.venv/bin/slowrank a b   # c; d\n slowrank e 'f g' > h; slowrank i\nother j\n```\n"
    assert shown(text) == [["a", "b"], ["e", "f g"], ["i"]]


@pytest.mark.parametrize("doc", DOCS, ids=lambda path: path.name)
def test_each_command_is_taken(doc):
    """Its name, its options, and the form of their values; nothing is run."""
    for words in shown(doc.read_text()):
        command: Any = typer.main.get_command(app)
        rest = list(words)
        while (parts := getattr(command, "commands", None)) is not None:
            assert rest[0] in parts, words
            command = parts[rest.pop(0)]
        command.make_context(command.name, rest)


def test_the_readme_shows_what_there_is():
    """Of the commands that a user has first, each at least once."""
    assert {"doctor", "diagnose", "probe", "record", "explain", "serve", "incidents"} <= {
        words[0] for words in shown((ROOT / "README.md").read_text())
    }
