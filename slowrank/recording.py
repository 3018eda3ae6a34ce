"""Keep pages in a capture file, or not: the same call either way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from slowrank.exits import UnreachableError

if TYPE_CHECKING:
    from collector.model import Page


@contextmanager
def recording(path: Path | None) -> Iterator[Callable[[Page], None]]:
    """A function that keeps a page in `path`, or drops it when there is no path. Nothing is left of a recording that reached nobody."""
    if path is None:
        yield lambda _page: None
        return
    from collector.capture import CaptureWriter

    with CaptureWriter(path, created=time.time()) as writer:
        try:
            yield writer.write
        except UnreachableError:
            path.unlink(missing_ok=True)
            raise
