"""Which rank a process is, by the title that its engine gives it. Pure.

SGLang (0.5.x, `run_scheduler_process`): `sglang::scheduler` and then, each only where there is more than one, `_DP0`, `_PP0`, `_ATTN_CP0`,
`_MOE_DP0`, `_TP0`, `_EP0`. vLLM (0.32): `VLLM::EngineCore_DP0`, the suffix only with data parallelism.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from collector.engines.limits import rank_of

MAX_TITLE = 200
"""Characters of a title that are looked at; the engines' own have up to 60."""

_TITLES: Mapping[str, re.Pattern[str]] = {
    "sglang": re.compile(r"sglang::scheduler((?:_[A-Z]+(?:_[A-Z]+)?\d{1,4})*+)"),
    "vllm": re.compile(r"VLLM::EngineCore((?:_[A-Z]+\d{1,4})*+)"),
}
_PART = re.compile(r"_([A-Z]+(?:_[A-Z]+)?)(\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the layout a scheduler process stands."""

    rank: int  # DP rank; 0 for an engine without data parallelism
    stage: int = 0  # pipeline
    tensor: int = 0  # tensor-parallel rank


def place_of(title: str, kind: str) -> Place | None:
    """The place that a title states; None for a process that is no scheduler of an engine of this kind."""
    pattern = _TITLES.get(kind)
    match = pattern.fullmatch(title.strip()[:MAX_TITLE]) if pattern else None
    if match is None:
        return None
    parts = dict(_PART.findall(match[1]))
    numbers = [rank_of(str(int(parts.get(name, "0")))) for name in ("DP", "PP", "TP")]
    return None if None in numbers else Place(*(number or 0 for number in numbers))


def is_scheduler(title: str) -> bool:
    """Whether a title is that of a scheduler of any engine."""
    return any(place_of(title, kind) is not None for kind in _TITLES)
