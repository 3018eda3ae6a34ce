"""The way from TARGET arguments to verdicts: captures and live engines become windows, windows become diagnoses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from collector import deepxtrace
from collector.errors import ConfigError, SourceError
from collector.intake import Intake
from collector.model import Problem
from diagnose import fleet
from diagnose.engine import diagnose
from diagnose.model import Class, EngineDiagnosis
from slowrank.exits import Exit
from slowrank.live import collect
from slowrank.recording import recording
from slowrank.targets import NO_MACHINES, Machines, parse, replay, split, windows

if TYPE_CHECKING:
    from collector.model import Clock, Page, Window


LOG_BYTES = 16 << 20
"""Bytes from the end of a dispatch log that are read: a dump of 1,024 ranks is 13 MB, one of 16 ranks 4 KB."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read, before anything is concluded."""

    windows: tuple[Window, ...]
    unreached: Mapping[str, str] = field(default_factory=dict)  # engine -> why
    interrupted: bool = False


def read(
    targets: Sequence[str],
    seconds: float | None,
    live_seconds: float,
    record: Path | None,
    key_name: str | None,
    clock: Clock | None = None,
    machines: Machines = NO_MACHINES,
) -> Reading:
    """The windows of all targets. `seconds` None: all of a capture, `live_seconds` of a live engine. `clock`: as a person says it."""
    captures, addresses = split(targets)
    if record is not None and not addresses:
        raise ConfigError("--record keeps what is read from a live engine; the targets given are capture files already")
    if machines.wanted and not addresses:
        raise ConfigError("--hardware, --procfs and --nvml read live machines; a capture holds what was read when it was recorded")
    live = parse(addresses, key_name, machines)
    recorded = [window for path in captures for window in replay(path, seconds, clock, machines.gpus)]
    if not live:
        return Reading(tuple(recorded))
    lasting = live_seconds if seconds is None else seconds
    intake = Intake(depth_s=lasting + 1.0, clock=clock, gpus=machines.gpus)
    with recording(record) as keep:

        def on_page(page: Page) -> None:
            keep(page)
            intake.feed(page)

        collected = collect(live, lasting, on_page)
    read_now = windows(intake, leave_out=tuple(collected.unreached))
    return Reading((*recorded, *read_now), collected.unreached, collected.interrupted)


def with_dispatch_log(found: Sequence[Window], path: Path | None) -> tuple[Window, ...]:
    """The windows with what DeepXTrace's log at `path` says of their one engine. ConfigError for several engines or a file that cannot be
    read; a log that holds no matrix of this engine is a Problem of the window."""
    if path is None:
        return tuple(found)
    if len(found) != 1:
        raise ConfigError(f"--dispatch-log {path} is of one engine, and {len(found)} were read; give that engine alone")
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            text = file.read(LOG_BYTES).decode(errors="replace")
    except OSError as error:
        raise ConfigError(f"--dispatch-log {path}: {error.strerror or error}") from None
    (window,) = found
    try:
        return (deepxtrace.attach(window, deepxtrace.parse(text, str(path)), str(path)),)
    except SourceError as error:
        return (replace(window, problems=(*window.problems, Problem("dispatch log", str(error)))),)


def conclude(
    found: Sequence[Window], baseline: Path | None, clock: Clock | None = None, gpus: Mapping[int, tuple[str, ...]] | None = None
) -> list[EngineDiagnosis]:
    """A diagnosis of each window, against the engine's healthy past if a capture of it is given, and beside its twins among the others."""
    past = {window.engine.id: window for window in replay(baseline, None, clock, gpus)} if baseline is not None else {}
    return [diagnose(window, _past_of(window, past, alone=len(found) == 1), twins=fleet.twins(window, found)) for window in found]


def _past_of(window: Window, past: Mapping[str, Window], *, alone: bool) -> Window | None:
    """The baseline of the same engine; a lone baseline also serves a lone engine that now has another address."""
    if not past or window.engine.id in past:
        return past.get(window.engine.id)
    if alone and len(past) == 1:
        return next(iter(past.values()))
    raise ConfigError(f"the baseline holds {', '.join(sorted(past))}, but not {window.engine.id}; record one of that engine")


def exit_of(klass: Class) -> Exit:
    """The exit code that a verdict of this class means."""
    if klass is Class.HEALTHY:
        return Exit.HEALTHY
    return Exit.INSUFFICIENT if klass is Class.INSUFFICIENT else Exit.FINDING
