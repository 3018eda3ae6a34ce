"""`slowrank diagnose`: read live engines or captures, say what is wrong, exit with what was found."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.errors import ConfigError
from slowrank.commands import history_options
from slowrank.commands.options import GPUS, HARDWARE, KEY, NVML, PROCFS, TIME, ClockOption, ReportFormat, parse_time
from slowrank.exits import Exit, worst
from slowrank.terminal import colour, say, tell, width

if TYPE_CHECKING:
    from collector.model import Window
    from diagnose.model import EngineDiagnosis

LIVE_SECONDS = 20.0
"""Four metrics pages at their 5 s interval: three deltas, which can agree or not."""


def diagnose(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="URL or host:port (a comma joins the nodes of one engine), or a capture file."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--for", parser=parse_time, metavar=TIME, help="How long to read: 20s of a live engine, all of a capture if not given."
        ),
    ] = None,
    form: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            help="text for people, json for programs (docs/report.schema.json), markdown for a ticket, html for a browser: one file with"
            " heat maps of the ranks, which needs no network.",
        ),
    ] = ReportFormat.TEXT,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="CAPTURE", help="A capture of this engine when it was healthy: shows slowness of the whole group."),
    ] = None,
    dispatch_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="DeepXTrace's log of this engine: who waits for whom in the experts' dispatch.")
    ] = None,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what is read in a capture file.")] = None,
    clock: Annotated[
        ClockOption,
        typer.Option(
            help="vLLM: lockstep for a model with experts, whose ranks step together; independent for one without; auto looks at how"
            " the step times move."
        ),
    ] = ClockOption.AUTO,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="An engine's log, SGLang's or vLLM's; a comma joins rotated files, oldest first. Says less than pages do."
        ),
    ] = None,
    api_key_env: Annotated[str | None, KEY] = None,
    hardware: Annotated[list[str] | None, HARDWARE] = None,
    procfs: Annotated[bool, PROCFS] = False,
    nvml: Annotated[bool, NVML] = False,
    gpus: Annotated[str | None, GPUS] = None,
    prometheus: Annotated[str | None, history_options.PROMETHEUS] = None,
    at: Annotated[str | None, history_options.AT] = None,
    since: Annotated[float | None, history_options.SINCE] = None,
    match: Annotated[str | None, history_options.MATCH] = None,
    token_env: Annotated[str | None, history_options.TOKEN_ENV] = None,
    token_file: Annotated[Path | None, history_options.TOKEN_FILE] = None,
    ca_file: Annotated[Path | None, history_options.CA_FILE] = None,
    tenant: Annotated[str | None, history_options.TENANT] = None,
    card: Annotated[str | None, history_options.CARD] = None,
) -> None:
    """Say whether a rank is slow, which, why, what it costs and what to do.

    Exit codes: 0 healthy, 1 finding, 2 usage or configuration, 3 insufficient evidence, 4 unreachable.
    Over several engines 1 beats 3 beats 4 beats 0.
    """
    from slowrank.diagnosing import conclude, exit_of, read, with_dispatch_log
    from slowrank.history import ask
    from slowrank.logs import read_log
    from slowrank.targets import machines

    question = history_options.question(prometheus, at, since, match, token_env, token_file, ca_file, tenant, card)
    if question is not None and (targets or log or record is not None or seconds is not None):
        raise ConfigError("--prometheus stands alone: give no TARGET, --log, --record or --for beside it; --since says how much is read")
    if not targets and not log and question is None:
        raise ConfigError("nothing to read: give a TARGET, for example host:30000, --prometheus URL, or --log FILE")
    on = machines(hardware, procfs, nvml, gpus)
    logs = tuple(read_log(text, seconds, clock.clock) for text in log or [])
    reading = read(targets or [], seconds, LIVE_SECONDS, record, api_key_env, clock.clock, on)
    past = ask(question, clock.clock) if question is not None else None
    windows = with_dispatch_log((*logs, *reading.windows, *(past.windows if past else ())), dispatch_log)
    diagnoses = conclude(windows, baseline, clock.clock, on.gpus)
    _print(diagnoses, windows, form)
    for problem in past.problems if past else ():
        tell(str(problem))
    if past and past.nothing:
        tell(past.nothing)
    for engine, why in reading.unreached.items():
        tell(f"{engine} did not answer: {why}")
    if reading.interrupted:
        tell("interrupted; this is what the part that was read says")
        raise typer.Exit(Exit.INTERRUPTED)
    raise typer.Exit(worst([*(exit_of(d.verdict.klass) for d in diagnoses), *(Exit.UNREACHABLE for _ in reading.unreached)]))


def _print(diagnoses: Sequence[EngineDiagnosis], windows: Sequence[Window], form: ReportFormat) -> None:
    if form is ReportFormat.JSON:
        from diagnose.report.json import to_json

        say(json.dumps(to_json(diagnoses), indent=2, allow_nan=False))
    elif form is ReportFormat.MARKDOWN:
        from diagnose.report import markdown

        say("\n---\n\n".join(map(markdown.render, diagnoses)).rstrip("\n"))
    elif form is ReportFormat.HTML:
        from diagnose.report.html import render_all

        say(render_all(list(zip(diagnoses, windows, strict=True))).rstrip("\n"))
    else:
        from diagnose.report.text import render

        between = "\n" + "-" * 40 + "\n\n"
        say(between.join(render(d, colour=colour(sys.stdout), width=width()) for d in diagnoses).rstrip("\n"))
