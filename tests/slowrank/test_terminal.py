"""Colour, width and messages at the rim."""

import io
import sys

import pytest

from slowrank.terminal import PIPE_WIDTH, bar, colour, tell, width


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("", True), ("1", False)])
def test_colour_on_a_terminal_unless_refused(monkeypatch: pytest.MonkeyPatch, no_color: str | None, coloured: bool) -> None:
    """NO_COLOR with any value but the empty one switches colour off."""
    if no_color is None:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", no_color)
    assert colour(Terminal()) is coloured
    assert not colour(io.StringIO())


def test_a_pipe_gets_a_ticket_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is redirected does not depend on the window it was started in."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", "43")
    assert width() == PIPE_WIDTH


def test_messages_are_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Foreign text in a message can neither forge lines nor drive the terminal, and markup stays literal."""
    tell("it said \x1b[2J\n[bold]HEALTHY[/]")
    assert capsys.readouterr().err == "slowrank: it said \\x1b[2J [bold]HEALTHY[/]\n"


def test_the_bar_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A log file gets no progress bar."""
    with bar("reading", 10.0) as progress:
        progress.at(5.0)
    assert capsys.readouterr() == ("", "")


def test_the_bar_shows_what_happens_and_keeps_markup_literal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal the doing is shown as it is, on stderr only."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with bar("reading [red]host[/]\x1b[2J", 10.0) as progress:
        progress.at(5.0)
    assert "reading [red]host[/]\\x1b[2J" in terminal.getvalue()
    assert capsys.readouterr().out == ""
