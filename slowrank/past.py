"""The way from --prometheus to windows: options checked, the server asked, what was read kept if asked for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from collector.errors import ConfigError
from slowrank.exits import UnreachableError
from slowrank.recording import recording
from slowrank.terminal import bar

if TYPE_CHECKING:
    from collector.model import Clock, Window
    from collector.prometheus.client import Server
    from collector.prometheus.read import Past

SINCE_S = 300.0
"""Twenty scrapes at the common 15 s: enough deltas to agree, and short enough to hold one incident."""


@dataclass(frozen=True, slots=True)
class PastOptions:
    """The options as they were typed; `url` None: nothing is read out of Prometheus, and the others may not be given."""

    url: str | None = None
    at: str | None = None
    since: float | None = None
    match: tuple[str, ...] = ()
    token_env: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


def from_prometheus(options: PastOptions, record: Path | None = None, clock: Clock | None = None) -> tuple[Window, ...]:
    """The window of every engine that the server knows; none without --prometheus. Raises ConfigError for options that cannot mean
    anything, UnreachableError when the server gives no answer or knows no engine in the span."""
    if options.url is None:
        given = [name for name in options.__slots__ if getattr(options, name) not in (None, ())]
        if given:
            raise ConfigError(f"--{given[0].replace('_', '-')} is about a Prometheus server; give its --prometheus URL too")
        return ()
    from collector.prometheus.answer import PrometheusError
    from collector.prometheus.queries import matchers
    from collector.prometheus.read import windows

    server, match = _server(options), matchers(options.match)
    end = time.time() if options.at is None else parse_moment(options.at)
    since = SINCE_S if options.since is None else options.since
    start_ms, end_ms = round((end - since) * 1000), round(end * 1000)
    try:
        with bar(f"reading {server.url}", 1.0) as progress:
            past = asyncio.run(_fetch(server, start_ms, end_ms, match, progress.at))
    except PrometheusError as error:
        raise UnreachableError(str(error)) from None
    if not past.engines:
        raise UnreachableError(_nothing(server.url, start_ms, end_ms, match, past))
    with recording(record) as keep:
        return tuple(windows(past, start_ms, end_ms, keep, clock))


def parse_moment(text: str) -> float:
    """Unix seconds of an ISO-8601 moment or of unix seconds. ConfigError for anything else; a moment without a zone is refused."""
    example = "write it as 2026-05-01T12:30:00Z, or as unix seconds"
    try:
        moment = float(text) if text.replace(".", "", 1).isdigit() else datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--at {text[:40]!r} is no moment; {example}") from None
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ConfigError(f"--at {text[:40]!r} has no time zone; {example}")
        moment = moment.timestamp()
    if not 0 < moment < 4_102_444_800:
        raise ConfigError(f"--at {text[:40]!r} is not between 1970 and 2100; {example}")
    return moment


async def _fetch(server: Server, start_ms: int, end_ms: int, match: str, progress: Callable[[float], None]) -> Past:
    from collector.prometheus.client import Client
    from collector.prometheus.read import fetch

    async with Client(server) as client:
        return await fetch(client, start_ms, end_ms, match, progress)


def _server(options: PastOptions) -> Server:
    from collector.prometheus.client import Server, parse_server

    assert options.url is not None
    if options.token_env is not None and options.token_file is not None:
        raise ConfigError("--token-env and --token-file both give a token; give one of them")
    if options.key_file is not None and options.cert_file is None:
        raise ConfigError("--key-file is the key of a certificate; give that with --cert-file")
    token = None
    if options.token_env is not None:
        token = os.environ.get(options.token_env, "").strip()
        whence = f"--token-env {options.token_env}: there is no such environment variable, or it"
    elif options.token_file is not None:
        whence = f"--token-file {options.token_file}: it"
        try:
            token = options.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"--token-file {options.token_file}: cannot be read ({getattr(error, 'strerror', None) or 'not text'})"
            ) from None
    if token is not None and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"{whence} is empty or holds characters that a header cannot carry")
    files = (str(path) if path is not None else None for path in (options.ca_file, options.cert_file, options.key_file))
    return Server(parse_server(options.url), token, *files)


def _nothing(url: str, start_ms: int, end_ms: int, match: str, past: Past) -> str:
    """Why there is no engine to diagnose."""
    told = [str(problem) for problem in past.problems]
    if told:
        return f"{url}: no engine could be read: " + " | ".join(told)
    span = " to ".join(datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") for ms in (start_ms, end_ms))
    narrowed = f" with {match}" if match else ""
    return (
        f"{url}: no series of SGLang (sglang:...), vLLM (vllm:...) or slowrank between {span}{narrowed}; the span may lie before the"
        " server's retention: give another --at or --since, or look whether the engines' /metrics are scraped"
    )
