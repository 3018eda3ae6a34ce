"""`slowrank doctor`: which signals a target gives, which flag turns on the others, what each would add, and which verdicts wait for it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from slowrank.commands.options import GPUS, HARDWARE, KEY, NVML, PROCFS, TIME, Format, parse_time
from slowrank.exits import Exit
from slowrank.terminal import say, tell, width


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
    """Say which signals an engine gives, which flag turns on each of the others, and what cannot be told without them.

    For each missing or frozen signal: what it would add, and which rules need it. Then the verdicts that are impossible today, by the
    change that makes most of them possible, and those that are possible but weaker.

    Exit codes: 0 all there, 1 something is missing, 2 usage or configuration, 4 unreachable.
    """
    from diagnose.rules import load
    from slowrank.diagnosing import read
    from slowrank.doctor import examine
    from slowrank.doctor_report import render, to_json
    from slowrank.targets import machines

    reading = read([target], None, seconds, None, api_key_env, machines=machines(hardware, procfs, nvml, gpus))
    checkups = [examine(window, load()) for window in reading.windows]
    say(json.dumps(to_json(checkups), indent=2) if form is Format.JSON else "\n".join(render(c, width()) for c in checkups).rstrip("\n"))
    if reading.interrupted:
        tell("interrupted; this is what the part that was read says")
        raise typer.Exit(Exit.INTERRUPTED)
    raise typer.Exit(0 if all(c.complete for c in checkups) else 1)
