"""`--prometheus`: options to a server, and its engines' windows."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from collector.errors import ConfigError
from slowrank.exits import UnreachableError

if TYPE_CHECKING:
    from collector.model import Clock
    from collector.prometheus.api import Server
    from collector.prometheus.read import Answer

SINCE = 600.0
"""Forty scrapes at 15 s: enough for every rule, and short enough that one fault lies in it."""

_EARLIEST = 1_262_304_000.0
"""2010: no engine of ours is older, so a smaller number is a slip."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a history server. `at`: the end, None for now; `since`: seconds before it."""

    url: str
    at: str | None = None
    since: float | None = None
    match: str | None = None
    token_env: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    tenant: str | None = None
    card: str | None = None


def ask(question: Question, clock: Clock | None = None) -> Answer:
    """The windows of every engine that the server holds. ConfigError for options that cannot mean anything, UnreachableError when the
    server does not answer; that it holds nothing is an Answer without windows."""
    from collector.prometheus import errors, matchers
    from collector.prometheus.api import Api
    from collector.prometheus.read import Answer, NothingError, Scope, read

    server = server_of(question)
    end = moment(question.at, time.time())
    start = end - (SINCE if question.since is None else question.since)
    narrowed = matchers.parse(question.match) if question.match is not None else ()

    async def answer() -> Answer:
        async with Api(server) as api:
            return await read(api, Scope(start, end, narrowed, clock, question.card))

    try:
        return asyncio.run(answer())
    except NothingError as nothing:
        return Answer((), nothing=str(nothing))
    except errors.PrometheusError as error:
        raise UnreachableError(str(error)) from None


def server_of(question: Question) -> Server:
    """Where to ask, and with what. A token is never taken from the command line, where every user of the machine could read it."""
    from collector.prometheus.api import Server, parse_url

    token = None
    if question.token_env is not None and question.token_file is not None:
        raise ConfigError("--token-env and --token-file both name a token; give one of them")
    if question.token_env is not None:
        token = os.environ.get(question.token_env)
        if not token:
            then = f"export {question.token_env} first"
            raise ConfigError(f"--token-env {question.token_env}: there is no such environment variable, or it is empty; {then}")
    if question.token_file is not None:
        try:
            token = question.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file {question.token_file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    return Server(parse_url(question.url), token, question.ca_file, question.tenant)


def moment(text: str | None, now: float) -> float:
    """Unix seconds of `--at`: ISO 8601 (UTC when it names no zone) or unix seconds; None is now. ConfigError for anything else."""
    if text is None:
        return now
    try:
        when = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text)
            when = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise ConfigError(f"--at {text!r} is no time; write it as 2026-01-31T14:30:00Z or in unix seconds") from None
    if not _EARLIEST <= when <= now + 3600:
        raise ConfigError(f"--at {text!r} lies outside 2010 to now; unix times are in seconds")
    return when
