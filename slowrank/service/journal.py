"""The service's log: JSON where machines read it, colour on a terminal. Secrets and foreign control characters never get into it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any

import structlog

from diagnose.alerts.secret import SHOWN, Secret
from diagnose.report.plain import safe

LONGEST = 2_000
"""Characters of one value: an error that quotes a page must not fill the disk."""

QUIET = ("httpx", "httpcore", "uvicorn.access", "asyncio")
"""Loggers that would write a line for each page: at warnings only."""


def write_log(form: str, level: str) -> None:
    """Set up logging of the whole process, to stderr. `form`: auto, json or console."""
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
    ]
    last: list[Any] = (
        [clean, structlog.dev.ConsoleRenderer()]
        if console
        else [structlog.processors.format_exc_info, clean, structlog.processors.JSONRenderer(sort_keys=True)]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


_hidden: dict[str, None] = {}


def hide(secrets: Iterable[Secret | None]) -> None:
    """Values that are cut out of every line from now on, should something quote one."""
    _hidden.update(dict.fromkeys(s.reveal() for s in secrets if s is not None and len(s.reveal()) >= 6))


def clean(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """A structlog processor: every text on one line, without what a terminal obeys, without secrets."""
    return {key: _cleaned(key, value) for key, value in event.items()}


def _cleaned(key: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float) or key == "exc_info":
        return value
    text = str(value)
    for secret in _hidden:
        text = text.replace(secret, SHOWN)
    if key in {"exception", "stack"}:
        return "\n".join(safe(line, LONGEST) for line in text.splitlines())
    return safe(text, LONGEST)
