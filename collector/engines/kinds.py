"""Which engine a page is of, and who reads it: the one place that knows all engines. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from collector.engines import sglang, vllm
from collector.model import Page, Reading, Source, Window


class Reader(Protocol):
    """What turns the pages of one engine into readings."""

    def read(self, page: Page) -> Reading: ...


PATHS: Mapping[Source, str] = sglang.PATHS | vllm.PATHS
"""URL path of each source that is fetched, below a node's base URL."""

READERS: Mapping[str, Callable[[], Reader]] = {"sglang": sglang.Reader, "vllm": vllm.Reader}
ADJUST: Mapping[str, Callable[[Window], Window]] = {"sglang": sglang.adjust, "vllm": vllm.adjust}

_KIND = {Source.VLLM_METRICS: "vllm", Source.VLLM_LOG: "vllm"}
_VLLM = re.compile(rb"^(?:# (?:HELP|TYPE) )?vllm[:_]", re.MULTILINE)
_SGLANG = re.compile(rb"^(?:# (?:HELP|TYPE) )?sglang[:_]", re.MULTILINE)


def kind_of(source: Source) -> str:
    """The kind of engine that has such a source."""
    return _KIND.get(source, "sglang")


def recognise(body: bytes) -> Source:
    """Whose metrics page a body is, by the families on it. Neither's, or both's: SGLang's, whose reader says what is missing."""
    return Source.VLLM_METRICS if _VLLM.search(body) and not _SGLANG.search(body) else Source.SGLANG_METRICS
