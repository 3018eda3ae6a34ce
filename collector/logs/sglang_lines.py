"""SGLang's `Decode batch` and `Prefill batch` lines. Pure.

Forms seen from 0.5 on and in reports from the field: `[2026-03-17 17:35:07 DP9 TP9] Decode batch, #running-req: 12, #token: 768, ...`, with
or without the first bracket, `.` for `,`, `#full token` for `#token`, further ranks (PP, EP) and fields. A decode line is written every
--decode-log-interval (40) steps, its throughput is the mean since the one before; a prefill line is written for each batch.
"""

from __future__ import annotations

import re

from collector import signals
from collector.engines.limits import rank_of
from collector.logs.line import Line, Stamp, number
from collector.model import Source

MARKS = ("Decode batch", "Prefill batch")
"""What a line holds that should be one of these."""

_LINE = re.compile(
    r"\[?(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,]\d{1,9})?([^\]\[]{0,60})\]"
    r".{0,200}?\b(Decode|Prefill) batch(?: \[\d{1,20}\])?[.,](.*)",
    re.DOTALL,
)
_RANK = re.compile(r"\b(DP|TP)(\d{1,4})\b")

_GAUGES = (
    (signals.RUNNING, ("#running-req",)),
    (signals.WAITING, ("#queue-req",)),
    (signals.RESIDENT_TOKENS, ("#token", "#full token")),
    (signals.KV_USAGE, ("token usage", "full token usage")),
)
_ADDS = ((signals.PREFILL_TOKENS, ("#new-token",)), (signals.CACHED_TOKENS, ("#cached-token",)))


def parse(text: str) -> Line | None:
    """The report that a line holds; None when it holds none, or is cut before its first field."""
    match = _LINE.search(text)
    if match is None:
        return None
    fields = {key.strip(): value.strip() for part in match[9].split(",") for key, mark, value in [part.partition(":")] if mark}
    values = {key: found for key, value in fields.items() if (found := number(value)) is not None}
    gauges = {signal: values[key] for signal, keys in _GAUGES for key in keys if key in values}
    ranks = dict(_RANK.findall(match[7]))
    decode = match[8] == "Decode"
    adds = {} if decode else {signal: values[key] for signal, keys in _ADDS for key in keys if key in values}
    if not gauges and not adds:
        return None
    rate, running = values.get("gen throughput (token/s)") if decode else None, values.get("#running-req", 0.0)
    return Line(
        source=Source.SGLANG_LOG,
        stamp=Stamp(*(int(match[k]) for k in range(1, 7))),
        rank=rank_of(ranks["DP"]) if "DP" in ranks else None,
        part=rank_of(ranks.get("TP", "0")) or 0,
        gauges=gauges if decode else {s: v for s, v in gauges.items() if s != signals.RUNNING},  # the batch before, seen from a prefill
        adds=adds,
        rate=rate,
        tokens_a_step=running * values.get("accept len", 1.0) if rate is not None and running > 0 else None,
    )
