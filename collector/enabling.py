"""How a missing signal is had from each kind of engine, and which an engine never gives. Data; pure.

The catalogue's own words (`Signal.enable`) are about SGLang; another engine's stand here. Source of the facts: docs/signals.md.
"""

from __future__ import annotations

from collector import signals
from collector.signals import CATALOGUE

_STATS = "start vLLM without --disable-log-stats"
_PROBE = (
    "read the workers' processes and cards on their nodes (procfs, dcgm-exporter), or let slowrank probe pin one long prompt"
    " to each rank in turn: vLLM measures no wait between ranks"
)
_BALANCE = (
    "read the log of EP rank 0: with --enable-eplb and log_balancedness in --eplb-config it holds the group's balancedness, and vLLM"
    " publishes no expert load"
)
_GRAPHS = "read the engine's log: with --cudagraph-metrics it says how passes ran, and no page does"
_NOT = "nothing helps: vLLM 0.32 and 0.33 do not publish it"

VLLM: dict[str, str] = {
    signals.RUNNING: _STATS,
    signals.WAITING: _STATS,
    signals.KV_USAGE: _STATS,
    signals.RESIDENT_TOKENS: _STATS + "; the cache's size (cache_config_info) is on the Python front end's page only",
    signals.PREFILL_TOKENS: _STATS,
    signals.CACHED_TOKENS: _STATS,
    signals.ATTENTION_TOKENS: _STATS,
    signals.DECODE_STEPS: _STATS,
    signals.DECODE_TIME: _STATS,
    signals.STEPS_ACTIVE: _STATS,
    signals.STEPS_IDLE: "say with --clock whether the model has experts (lockstep) or not (independent), or read for longer",
    signals.RETRACTED: _STATS,
    signals.ACCEPT_LENGTH: _STATS,
    signals.FIRST_TOKEN_TIME: _STATS + "; of several nodes every one must be named",
    signals.FIRST_TOKENS: _STATS + "; of several nodes every one must be named",
    signals.REQUEST_QUEUE_TIME: _STATS,
    signals.REQUEST_PREFILL_TIME: _STATS,
    signals.FINISHED_REQUESTS: _STATS,
}
"""What vLLM's page gives, and how it is had when it is missing."""

_VLLM_NEVER: dict[str, str] = {
    signals.SYNC_WAIT: _PROBE,
    signals.RECV_WAIT: _PROBE,
    signals.SNAPSHOT_AGE: "nothing helps: vLLM publishes no load snapshots; that a rank has stopped shows in counters that stand still",
    signals.SCHEDULER_CPU: "read the CPU time of the processes VLLM::EngineCore on the ranks' nodes (procfs)",
    signals.BALANCEDNESS_SUM: _BALANCE,
    signals.BALANCEDNESS_COUNT: _BALANCE,
    signals.EXPERT_LOAD: _BALANCE,
    signals.GRAPH_STEPS: _GRAPHS,
    signals.EAGER_STEPS: _GRAPHS,
}


def enable(signal: str, kind: str) -> str:
    """What to do on an engine of this kind so that a signal of the catalogue appears."""
    found = CATALOGUE[signal]
    if kind != "vllm" or found.optional:
        return found.enable
    return VLLM.get(signal) or _VLLM_NEVER.get(signal, _NOT)


def given(signal: str, kind: str) -> bool:
    """Whether an engine of this kind can give a signal at all. Signals of optional sources are not the engine's to give."""
    if CATALOGUE[signal].only:
        return CATALOGUE[signal].only == kind
    return kind != "vllm" or CATALOGUE[signal].optional or signal in VLLM
