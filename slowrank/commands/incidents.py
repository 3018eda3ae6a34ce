"""`slowrank incidents`: what was wrong, when, and what is wrong now, from the incident file."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slowrank.commands.options import Format
from slowrank.terminal import say


class Which(StrEnum):
    """Which incidents are listed."""

    ALL = "all"
    OPEN = "open"
    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    RESOLVED = "resolved"
    CLOSED = "closed"


def incidents(
    db: Annotated[Path, typer.Option("--db", metavar="FILE", help="The incident file that slowrank writes.")],
    engine: Annotated[str | None, typer.Option(metavar="ENGINE", help="Of this engine only, as the table names it.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="That were still there then: 7d, 12h, 2026-11-30 or 2026-11-30T08:00 (UTC).")
    ] = None,
    state: Annotated[Which, typer.Option(help="open is all but closed; resolved may still come back, closed cannot.")] = Which.ALL,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest.")] = 100,
    form: Annotated[Format, typer.Option("--format", help="text for people, json for programs.")] = Format.TEXT,
) -> None:
    """List incidents, the newest first.

    Exit codes: 0 none of those listed is confirmed and still there, 1 one is, 2 usage or configuration.
    """
    from diagnose.alerts.history import STATES, Question, ask
    from slowrank.incidents import exit_of, parse_since, table, to_json

    states = {Which.ALL: None, Which.OPEN: tuple(s for s in STATES if s != "closed")}.get(state, (state.value,))
    moment = None if since is None else parse_since(since, time.time())
    found = ask(db.expanduser(), Question(engine, states, moment, None, limit))
    if form is Format.JSON:
        say(json.dumps(to_json(found), indent=2))
    else:
        say("\n".join(table(found)) if found else "no such incidents")
    raise typer.Exit(exit_of(found))
