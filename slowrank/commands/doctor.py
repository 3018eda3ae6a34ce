"""`slowrank doctor`: which signals a target gives, which flag turns on the others, and what each would add."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from slowrank.commands.options import GPUS, HARDWARE, KEY, NVML, PROCFS, TIME, Format, parse_time
from slowrank.exits import Exit
from slowrank.terminal import say, tell, width

if TYPE_CHECKING:
    pass


def doctor(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="URL or host:port (a comma joins the nodes of one engine), or a capture file.")
    ],
    seconds: Annotated[
        float,
        typer.Option("--for", parser=parse_time, metavar=TIME, help="How long to read: two metrics pages at least.", show_default="6s"),
    ] = 6.0,
    form: Annotated[Format, typer.Option("--format", help="text for people, json for programs.")] = Format.TEXT,
    api_key_env: Annotated[str | None, KEY] = None,
    hardware: Annotated[list[str] | None, HARDWARE] = None,
    procfs: Annotated[bool, PROCFS] = False,
    nvml: Annotated[bool, NVML] = False,
    gpus: Annotated[str | None, GPUS] = None,
) -> None:
    """Say which signals an engine gives, and which flag turns on each of the others.

    For each missing signal: what it would add, and which rules need it.

    Exit codes: 0 all there, 1 something is missing, 2 usage or configuration, 4 unreachable.
    """
    from diagnose.rules import load
    from slowrank.diagnosing import read
    from slowrank.doctor import examine, render, to_json
    from slowrank.targets import machines

    reading = read([target], None, seconds, None, api_key_env, machines(hardware, procfs, nvml, gpus))
    checkups = [examine(window, load()) for window in reading.windows]
    say(json.dumps(to_json(checkups), indent=2) if form is Format.JSON else "\n".join(render(c, width()) for c in checkups).rstrip("\n"))
    if reading.interrupted:
        tell("interrupted; this is what the part that was read says")
        raise typer.Exit(Exit.INTERRUPTED)
    raise typer.Exit(0 if all(c.complete for c in checkups) else 1)
