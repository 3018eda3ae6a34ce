"""The log: a line of JSON each, no secret, nothing that a terminal obeys, however it came in."""

from __future__ import annotations

import json
import logging
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from hypothesis import given
from hypothesis import strategies as st

from diagnose.alerts.secret import Secret
from slowrank.service import journal
from slowrank.service.journal import clean, hide, write_log


@contextmanager
def logging_to_json() -> Iterator[None]:
    """Logging set up as JSON, and put back afterwards. Inside the test, as pytest's own handlers come when it begins."""
    root = logging.getLogger()
    handlers, level, quiet = root.handlers[:], root.level, {name: logging.getLogger(name).level for name in journal.QUIET}
    write_log("json", "info")
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, before in quiet.items():
            logging.getLogger(name).setLevel(before)
        structlog.reset_defaults()
        journal._hidden.clear()


def written(capsys) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_ours_and_others_lines_are_json_with_the_same_keys(capsys):
    """structlog's and logging's: time, level, logger, event."""
    with logging_to_json():
        structlog.get_logger("a").info("engine is watched", engine="e")
        logging.getLogger("b").warning("%s broke", "it")
    first, second = written(capsys)
    assert (first["event"], first["engine"], first["level"], first["logger"]) == ("engine is watched", "e", "info", "a")
    assert (second["event"], second["level"], second["logger"]) == ("it broke", "warning", "b")
    assert {"timestamp"} <= first.keys() & second.keys()


def test_no_secret_is_written_even_when_an_error_quotes_it(capsys):
    """In a text, in a value, in a traceback."""
    with logging_to_json():
        hide([Secret("hunter2hunter2"), None])
        log = structlog.get_logger("a")
        log.info("token hunter2hunter2", why="x hunter2hunter2 y")
        try:
            raise RuntimeError("hunter2hunter2")
        except RuntimeError:
            log.exception("broke")
    said = written(capsys)
    assert "hunter2hunter2" not in json.dumps(said)
    assert "RuntimeError" in said[1]["exception"]


def test_pages_that_are_fetched_are_no_lines(capsys):
    """httpx would log each of them."""
    with logging_to_json():
        logging.getLogger("httpx").info("HTTP Request: GET http://a/metrics")
    assert written(capsys) == []


@given(st.text(max_size=3000))
def test_any_text_is_one_line_without_what_a_terminal_obeys(text):
    """Engine names, errors that quote pages."""
    shown = clean(None, "info", {"event": text})["event"]
    assert len(shown) <= journal.LONGEST
    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in shown)
