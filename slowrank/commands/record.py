"""`slowrank record`: keep what an engine says for a while in a file that can be diagnosed later and elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slowrank.commands.options import HARDWARE, KEY, NVML, PROCFS, TIME, parse_time
from slowrank.exits import Exit
from slowrank.terminal import tell

if TYPE_CHECKING:
    from collector.model import Page


def record(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET", help="URL or host:port; a comma joins the nodes of one engine.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The capture file to write; must not exist yet.")],
    seconds: Annotated[
        float, typer.Option("--for", parser=parse_time, metavar=TIME, help="How long to record.", show_default="60s")
    ] = 60.0,
    api_key_env: Annotated[str | None, KEY] = None,
    hardware: Annotated[list[str] | None, HARDWARE] = None,
    procfs: Annotated[bool, PROCFS] = False,
    nvml: Annotated[bool, NVML] = False,
) -> None:
    """Record what an engine says into a capture file, to diagnose later and elsewhere.

    Model names, secrets, paths and command lines are left out, so that it can be attached to a bug report.

    Exit codes: 0 recorded, 2 usage or configuration, 4 an engine did not answer.
    """
    from slowrank.live import collect
    from slowrank.recording import recording
    from slowrank.targets import machines, parse

    live = parse(targets, api_key_env, machines(hardware, procfs, nvml, None))
    kept = 0
    with recording(output) as keep:

        def on_page(page: Page) -> None:
            nonlocal kept
            keep(page)
            kept += page.error is None

        collected = collect(live, seconds, on_page)
    tell(f"kept {kept:,} pages ({output.stat().st_size / 1e3:,.0f} kB) in {output}; read them with: slowrank diagnose {output}")
    for engine, why in collected.unreached.items():
        tell(f"{engine} did not answer: {why}")
    if collected.interrupted:
        tell("interrupted")
        raise typer.Exit(Exit.INTERRUPTED)
    raise typer.Exit(Exit.UNREACHABLE if collected.unreached else Exit.HEALTHY)
