"""SGLang's GET /server_info into Facts: how many DP ranks there should be. Pure.

The page waits for all schedulers without a time limit, so it hangs when a rank hangs: ask it once and with a timeout.
"""

from __future__ import annotations

import msgspec

from collector.engines.limits import MAX_RANKS
from collector.engines.sglang_loads import ROLES
from collector.jsonpage import decode
from collector.model import Facts, Page, Problem, Reading


class _ServerInfo(msgspec.Struct):
    dp_size: int | None = None
    attn_dp_size: int | None = None
    tp_size: int | None = None
    pp_size: int | None = None
    enable_dp_attention: bool | None = None
    version: str | None = None
    served_model_name: str | None = None
    model_path: str | None = None
    disaggregation_mode: str | None = None


def read(page: Page, url: str) -> Reading:
    """Facts of one reply of /server_info; no per-rank values: its `internal_states` carry no rank. SourceError for another body.

    Ranks are dp_size * attn_dp_size: under DP attention dp_size is 1 since 0.5.22, and attn_dp_size is not there before.
    """
    info = decode(page.body, _ServerInfo, url)
    problems: tuple[Problem, ...] = ()
    expected = None
    if info.dp_size is not None:
        expected = info.dp_size * (info.attn_dp_size if info.attn_dp_size is not None else 1)
        if not 1 <= expected <= MAX_RANKS:
            seen = f"dp_size and attn_dp_size do not multiply to a number of ranks (1 to {MAX_RANKS})"
            problems, expected = (Problem(url, seen, "how many ranks there should be is unknown"),), None
    facts = Facts(
        version=info.version or None,
        model=info.served_model_name or info.model_path or None,
        role=ROLES.get(info.disaggregation_mode or ""),
        expected_ranks=expected,
        cards=_cards(info),
    )
    return Reading(page.engine, page.node, page.source, page.arrived, facts=facts, problems=problems)


def _cards(info: _ServerInfo) -> int | None:
    """Cards of the whole engine: DP attention deals the TP group's cards to its ranks, plain DP has a TP group for each rank.

    None with pipeline stages, whose cards no rank owns alone."""
    if info.tp_size is None or info.dp_size is None or info.pp_size not in {None, 1}:
        return None
    groups = info.dp_size if info.attn_dp_size is not None or not info.enable_dp_attention else 1
    found = groups * info.tp_size
    return found if 1 <= found <= MAX_RANKS else None
