"""The rim where text meets the terminal: colour, width, messages, progress. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import typer

from diagnose.report.plain import prose

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PIPE_WIDTH = 100  # what reads well in a ticket
WIDEST = 120  # longer lines of prose are hard to follow


def colour(stream: TextIO) -> bool:
    """Whether to colour what goes to `stream`: a terminal, and the user has not asked otherwise (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def width() -> int:
    """How wide a report may be."""
    return min(shutil.get_terminal_size().columns, WIDEST) if sys.stdout.isatty() else PIPE_WIDTH


def say(text: str) -> None:
    """A result, on stdout. `text` was made safe where it was rendered."""
    typer.echo(text, color=colour(sys.stdout))


def tell(message: str) -> None:
    """One line for the person at the terminal, on stderr, safe whatever it quotes."""
    typer.echo(f"slowrank: {prose(message)}", err=True)


def never_fail_to_print() -> None:
    """Make a terminal that cannot show a character show its escape instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)  # a test's or a wrapper's stream may lack it
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class Bar:
    """A progress bar on stderr while slowrank waits; silent when stderr is no terminal."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress, self._task = progress, task

    def at(self, done: float) -> None:
        """`done` seconds of the whole have passed."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done)


@contextmanager
def bar(doing: str, seconds: float) -> Iterator[Bar]:
    """A bar that fills over `seconds` and leaves nothing behind."""
    if not sys.stderr.isatty():
        yield Bar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, no_color=not colour(sys.stderr))
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as progress:
        yield Bar(progress, progress.add_task(prose(doing, 70), total=seconds))


@contextmanager
def terminate_politely() -> Iterator[None]:
    """Make SIGTERM unwind like Ctrl-C does, so that no child process is left behind."""

    def unwind(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
