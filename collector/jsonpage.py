"""JSON bodies into typed structs. Whatever is wrong with a body, the answer is a SourceError that names the URL and what was seen."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from collector.errors import SourceError

T = TypeVar("T")

SHOWN = 160
"""Characters of a decoder's complaint that reach a message: enough for its path, too few to quote a body."""


def decode(body: bytes, into: type[T], url: str) -> T:
    """`body` as `into`; fields the type does not name are skipped. SourceError for HTML, truncation, wrong types, NaN, deep nesting."""
    if not body.strip():
        raise SourceError(f"{url}: the reply is empty where JSON was expected; ask again, and look at the engine's log if it stays so")
    if body.lstrip()[:1] == b"<":
        raise SourceError(f"{url}: HTML where JSON was expected; is this a proxy or a login page? Give the engine's own host and port")
    try:
        return msgspec.json.decode(body, type=into)
    except RecursionError:
        raise SourceError(f"{url}: JSON nested too deeply to be an engine's reply; is another service listening there?") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError) as error:
        said = str(error)[:SHOWN]
        raise SourceError(f"{url}: not the JSON that was expected ({said}); is this an SGLang server, and one node's own URL?") from None
