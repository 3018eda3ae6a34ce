"""Log files of engines become windows, as pages do. IO: files are read here, their lines are understood in collector.logs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from collector.errors import ConfigError
from slowrank.durations import LONGEST

if TYPE_CHECKING:
    from collector.model import Clock, Reading, Window

MOST_REPORTS = 200_000
"""Reports of a log that are kept, the newest: an hour of 50 ranks at one a second, in about 200 MB."""


def read_log(text: str, seconds: float | None, clock: Clock | None = None) -> Window:
    """The window of one engine's log: its last `seconds`, or all of it. A comma joins rotated files, oldest first, and the logs of an
    engine's nodes. Raises ConfigError for a file that is not there or cannot be read."""
    from collector.intake import Intake
    from collector.logs.read import Log

    paths = [Path(part.strip()).expanduser() for part in text.split(",")]
    log = Log(text, _year(paths[-1]))
    kept: deque[Reading] = deque(log.readings(_lines(paths)), maxlen=MOST_REPORTS)
    times = [reading.arrived for reading in kept]
    span = max(times, default=0.0) - min(times, default=0.0) + 1.0 if seconds is None else seconds
    intake = Intake(depth_s=min(span, LONGEST), clock=clock)
    for reading in kept:
        intake.take(reading)
    for problem in log.problems():
        intake.note(problem)
    if not kept:
        raise ConfigError(f"{text}: holds no line of a batch or of statistics; give a log of SGLang's or vLLM's own, at level INFO")
    return intake.window(text, min(span, LONGEST))


def _year(path: Path) -> int:
    """The year in which a file was last written, for lines that do not say theirs."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).year
    except OSError as error:
        raise ConfigError(f"--log {path}: cannot be read ({error.strerror}); give a file of an engine's log") from None


def _lines(paths: list[Path]) -> Iterator[bytes]:
    """The lines of the files, one after the other; longer ones in pieces."""
    from collector.logs.read import LONGEST_LINE

    for path in paths:
        try:
            with path.open("rb") as file:
                while line := file.readline(LONGEST_LINE):
                    yield line
        except OSError as error:
            raise ConfigError(f"--log {path}: cannot be read ({error.strerror}); give a file of an engine's log") from None
