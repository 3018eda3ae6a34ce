"""Which rank a process is, by the title that its engine gives it. Pure.

SGLang (0.5.x, `run_scheduler_process`): `sglang::scheduler` and then, each only where there is more than one, `_DP0`, `_PP0`, `_ATTN_CP0`,
`_MOE_DP0`, `_TP0`, `_EP0`. vLLM (0.32): `VLLM::EngineCore_DP0`, the suffix only with data parallelism, which schedules; and its children
`VLLM::Worker_DP0_TP0_EP0`, which run the forwards, where a rank has several cards, or CPUs. A worker without a model, and one of a model
without experts, has no `_DP`: its parent's title says the rank then.
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
    "vllm": re.compile(r"VLLM::(?:EngineCore|Worker)((?:_[A-Z]+\d{1,4})*+)"),
}
_WORKER = "VLLM::Worker"
_PART = re.compile(r"_([A-Z]+(?:_[A-Z]+)?)(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in the layout a process stands. Those of one rank are ordered: the first one schedules."""

    rank: int  # DP rank; 0 for an engine without data parallelism
    worker: bool = False  # it runs forwards and schedules nothing
    stage: int = 0  # pipeline
    tensor: int = 0  # tensor-parallel rank


def place_of(title: str, kind: str) -> Place | None:
    """The place that a title states; None for a process that is no rank's of an engine of this kind."""
    parts = _parts(title, kind)
    if parts is None:
        return None
    numbers = [rank_of(str(int(parts.get(name, "0")))) for name in ("DP", "PP", "TP")]
    if None in numbers:
        return None
    rank, stage, tensor = (number or 0 for number in numbers)
    return Place(rank, title.strip().startswith(_WORKER), stage, tensor)


def states_rank(title: str, kind: str) -> bool:
    """Whether the title itself names its DP rank."""
    return "DP" in (_parts(title, kind) or {})


def is_scheduler(title: str) -> bool:
    """Whether a title is that of a rank's process of any engine."""
    return any(place_of(title, kind) is not None for kind in _TITLES)


def _parts(title: str, kind: str) -> dict[str, str] | None:
    pattern = _TITLES.get(kind)
    match = pattern.fullmatch(title.strip()[:MAX_TITLE]) if pattern else None
    return None if match is None else dict(_PART.findall(match[1]))
