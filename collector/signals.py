"""The catalogue of canonical signals: one name and one unit for a quantity, whatever engine it came from.

A rule names the signals it needs from here, `slowrank doctor` says which are missing and how to turn them on, and each engine
file (collector/engines/) says where a signal is read. Units are base units; a COUNTER reaches a window as its rate per second.
Sources of the facts: SGLang 0.5.23's own code, see docs/signals.md; of cards and processes: docs/hardware.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How the raw reading behaves, which decides how a window is made of it."""

    COUNTER = "counter"  # cumulative; a window holds its rate per second
    GAUGE = "gauge"  # a level; a window holds its mean over the interval


class Scope(Enum):
    """Whether ranks differ in the signal (an array row per rank) or the engine has one value (one row)."""

    RANK = "rank"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Signal:
    """One canonical quantity. `unit` is that of the raw reading; a counter's window value is unit/s.

    `optional`: it comes from a source that most engines are read without (hardware counters, processes). `only`: the one kind of engine
    that has it, where another's signals say the same; "": any."""

    name: str
    unit: str
    kind: Kind
    about: str
    enable: str
    adds: str
    scope: Scope = Scope.RANK
    optional: bool = False
    only: str = ""


_METRICS = "start SGLang with --enable-metrics"
_DP_ATTENTION = "start SGLang >= 0.5.22 with --enable-metrics and SGLANG_ENABLE_METRICS_DP_ATTENTION=1 in every scheduler's environment"
_LOADS = "upgrade SGLang to >= 0.5.18; /v1/loads needs no flag"
_TIMER = "start SGLang with --enable-metrics and SGLANG_ENABLE_METRICS_DEVICE_TIMER=1"
_EPLB = "start SGLang with --enable-metrics --expert-distribution-recorder-mode stat --expert-balancedness-report-mode prometheus"
_DISPATCH = "run DeepXTrace beside an engine that dispatches with DeepEP, and give its log to slowrank diagnose --dispatch-log FILE"
_DCGM = "give each node's dcgm-exporter page with --hardware URL, or run on the node with --nvml"
_STATISTICS = "start vLLM without --disable-log-stats"
_PROCFS = "run on the node that the ranks run on, with --procfs"

CATALOGUE: dict[str, Signal] = {}


def _signal(
    name: str, unit: str, kind: Kind, about: str, enable: str, adds: str, scope: Scope = Scope.RANK, optional: bool = False, only: str = ""
) -> str:
    CATALOGUE[name] = Signal(name, unit, kind, about, enable, adds, scope, optional, only)
    return name


RUNNING = _signal("running_requests", "1", Kind.GAUGE, "requests in the decode batch", _LOADS, "tells request skew from context skew")
WAITING = _signal("waiting_requests", "1", Kind.GAUGE, "requests queued on the rank", _LOADS, "shows queues behind a slow or overfull rank")
RESIDENT_TOKENS = _signal(
    "resident_tokens", "tokens", Kind.GAUGE, "KV tokens held by live requests", _LOADS, "stands in for attention pairs while decoding"
)
WAITING_TOKENS = _signal(
    "waiting_uncached_tokens", "tokens", Kind.GAUGE, "prompt tokens still to be prefilled", _LOADS, "shows prefill backlog per rank"
)
KV_USAGE = _signal("kv_usage", "ratio", Kind.GAUGE, "share of the KV pool in use", _LOADS, "shows a rank about to retract")
BOOTSTRAP_QUEUE = _signal(
    "bootstrap_queue",
    "1",
    Kind.GAUGE,
    "prefill server: requests that wait for the decode side's address and KV room",
    _LOADS,
    "shows requests held between prefill and decode",
)
INFLIGHT_QUEUE = _signal(
    "inflight_queue",
    "1",
    Kind.GAUGE,
    "prefill server: computed requests whose KV is still being sent",
    _LOADS,
    "shows a KV link that does not keep up",
)
PREALLOC_QUEUE = _signal(
    "prealloc_queue",
    "1",
    Kind.GAUGE,
    "decode server: requests that wait for KV room",
    _LOADS,
    "shows requests held between prefill and decode",
)
TRANSFER_QUEUE = _signal(
    "transfer_queue",
    "1",
    Kind.GAUGE,
    "decode server: requests whose KV has room here and has not arrived",
    _LOADS,
    "shows a KV link that does not keep up",
)
TRANSFER_SPEED = _signal(
    "kv_transfer_speed",
    "B/s",
    Kind.GAUGE,
    "prefill server: speed of the last KV transfer, 0 before the first one and on other servers",
    _METRICS,
    "tells a slow KV link from a partner that is late",
)
TRANSFER_LATENCY = _signal(
    "kv_transfer_latency",
    "s",
    Kind.GAUGE,
    "prefill server: duration of the last KV transfer, 0 before the first one and on other servers",
    _METRICS,
    "says how long a request's KV is under way",
)
SNAPSHOT_AGE = _signal(
    "snapshot_age", "s", Kind.GAUGE, "age of the rank's load snapshot when it was served", _LOADS, "the only sign of a stopped engine"
)
PREFILL_TOKENS = _signal(
    "prefill_tokens", "tokens", Kind.COUNTER, "prompt tokens computed (cache hits excluded)", _LOADS, "shows who prefills"
)
PREFILL_BUSY = _signal("prefill_busy", "s", Kind.COUNTER, "wall time of prefill steps", _LOADS, "shows how long prefill holds the group")
DECODE_STEPS = _signal(
    "decode_steps", "1", Kind.COUNTER, "consecutive decode steps (decode_moments n)", _LOADS, "gives the step time without any flag"
)
DECODE_TIME = _signal(
    "decode_time", "s", Kind.COUNTER, "launch-to-launch time of those steps (decode_moments sum t)", _LOADS, "gives the step time"
)
ACCEPT_LENGTH = _signal(
    "accept_length",
    "tokens",
    Kind.GAUGE,
    "tokens that a request gets from one decode step: 1 without speculative decoding",
    _LOADS,
    "tells a rank whose drafts are refused from a rank with more requests",
)
ATTENTION_TOKENS = _signal(
    "attention_tokens", "tokens", Kind.COUNTER, "tokens scheduled into steps", _DP_ATTENTION, "tells token skew from pair skew"
)
ATTENTION_PAIRS = _signal(
    "attention_pairs", "pairs", Kind.COUNTER, "attention pairs scheduled into steps", _DP_ATTENTION, "the work of attention, per rank"
)
IMBALANCE_PAIRS = _signal(
    "imbalance_pairs", "pairs", Kind.COUNTER, "busiest rank's pairs minus this rank's, per step", _DP_ATTENTION, "exact per-step maximum"
)
STEPS_ACTIVE = _signal("steps_active", "1", Kind.COUNTER, "steps with work of its own", _DP_ATTENTION, "the group's step count")
STEPS_IDLE = _signal("steps_idle", "1", Kind.COUNTER, "steps run only for the others", _DP_ATTENTION, "shows ranks kept stepping")
RECV_WAIT = _signal(
    "recv_wait",
    "s",
    Kind.COUNTER,
    "stage recv_requests: contains the wait in the control broadcast",
    _METRICS,
    "half of the host wait; without it the late rank cannot be named",
)
SYNC_WAIT = _signal("sync_wait", "s", Kind.COUNTER, "wait in the per-step metadata exchange", _DP_ATTENTION, "half of the host wait")
SCHEDULER_WORK = _signal(
    "scheduler_work",
    "s",
    Kind.COUNTER,
    "the scheduler's own stages: no waiting for peers, none for the device",
    _DP_ATTENTION,  # the sync wait lies inside the stages and is taken out
    "tells more work from stolen time",
)
SCHEDULER_CPU = _signal(
    "scheduler_cpu", "s", Kind.COUNTER, "CPU time of the scheduler process", _METRICS, "tells a starved process from a busy one"
)
FORWARD_TIME = _signal(
    "forward_time",
    "s",
    Kind.COUNTER,
    "device time of forwards, collective waits included",
    _TIMER,
    "bounds how much host lateness is hidden",
)
RETRACTED = _signal("retracted_requests", "1", Kind.COUNTER, "requests pushed out of the KV pool", _METRICS, "shows KV pressure")
CACHED_TOKENS = _signal(
    "cached_tokens",
    "tokens",
    Kind.COUNTER,
    "prompt tokens taken from the prefix cache",
    _METRICS,
    "tells prompts that lost their cache from prompts that are new",
)
GRAPH_STEPS = _signal("graph_steps", "1", Kind.COUNTER, "decode passes replayed from a CUDA graph", _METRICS, "shows lost CUDA graphs")
EAGER_STEPS = _signal("eager_steps", "1", Kind.COUNTER, "decode passes run eagerly", _METRICS, "shows lost CUDA graphs")
BALANCEDNESS_SUM = _signal(
    "balancedness_sum",
    "ratio",
    Kind.COUNTER,
    "sum of expert balancedness observations (mean / max expert load of a GPU)",
    _EPLB,
    "separates hot experts from a slow group",
    Scope.ENGINE,
)
BALANCEDNESS_COUNT = _signal(
    "balancedness_count",
    "1",
    Kind.COUNTER,
    "number of expert balancedness observations",
    _EPLB,
    "separates hot experts from a slow group",
    Scope.ENGINE,
)
FIRST_TOKEN_TIME = _signal(
    "first_token_time",
    "s",
    Kind.COUNTER,
    "time from a streaming request's arrival at the front end to its first token there, summed",
    _METRICS,
    "shows waiting that no rank causes",
    Scope.ENGINE,
)
FIRST_TOKENS = _signal(
    "first_tokens",
    "1",
    Kind.COUNTER,
    "streaming requests that got their first token",
    _METRICS,
    "shows waiting that no rank causes",
    Scope.ENGINE,
)
REQUEST_QUEUE_TIME = _signal(
    "request_queue_time",
    "s",
    Kind.COUNTER,
    "time that requests waited on the rank for their first step, summed when they end",
    _STATISTICS,
    "shows waiting that no rank causes",
    only="vllm",
)
REQUEST_PREFILL_TIME = _signal(
    "request_prefill_time",
    "s",
    Kind.COUNTER,
    "time from requests' first step to their first token by the rank's clock, summed when they end",
    _STATISTICS,
    "shows waiting that no rank causes",
    only="vllm",
)
FINISHED_REQUESTS = _signal(
    "finished_requests", "1", Kind.COUNTER, "requests that ended on the rank", _STATISTICS, "says how long a request stays", only="vllm"
)
EXPERT_LOAD = _signal(
    "expert_load",
    "tokens",
    Kind.COUNTER,
    "tokens dispatched to the experts on the rank's card, all reported layers",
    _EPLB + " and SGLANG_EPLB_HEATMAP_COLLECTION_INTERVAL=100",
    "names the card that holds the hot experts",
)
DISPATCH_WAIT = _signal(
    "dispatch_wait",
    "ratio",
    Kind.GAUGE,
    "how long the rank waits in the experts' dispatch, against its node's others for the same senders",
    _DISPATCH,
    "tells a queue before a card from a slow card and a slow group",
    optional=True,
)
DISPATCH_AWAITED = _signal(
    "dispatch_awaited",
    "ratio",
    Kind.GAUGE,
    "how long the others wait in dispatch for the rank's tokens, against its node's others",
    _DISPATCH,
    "tells a rank that is late itself from one that is reached late",
    optional=True,
)


def _card(name: str, unit: str, kind: Kind, about: str, adds: str, line: str = "") -> str:
    """A signal of a rank's card or cards. `line`: of dcgm-exporter's counters file, where it is not in the default one."""
    enable = f'add the line "{line}" to dcgm-exporter\'s counters file (-f FILE) and {_DCGM}' if line else _DCGM
    return _signal(name, unit, kind, about, enable, adds, optional=True)


_REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, Current clock event reasons (bitmask)."
_COOLING = "names a card that is too hot"

CARD_CLOCK = _card(
    "card_sm_clock", "Hz", Kind.GAUGE, "SM clock of the rank's slowest card while it works", "shows a card slower than its peers"
)
CARD_MEMORY_CLOCK = _card("card_memory_clock", "Hz", Kind.GAUGE, "memory clock of its slowest card", "shows slow memory")
CARD_TEMPERATURE = _card("card_temperature", "C", Kind.GAUGE, "temperature of its hottest card", _COOLING)
CARD_MEMORY_TEMPERATURE = _card("card_memory_temperature", "C", Kind.GAUGE, "temperature of its hottest memory", _COOLING)
CARD_POWER = _card("card_power", "W", Kind.GAUGE, "power that its cards draw", "shows a card held at another power than its peers")
CARD_THERMAL = _card("card_thermal_slowdown", "ratio", Kind.GAUGE, "share of time slowed for heat (0x20, 0x40)", _COOLING, _REASONS)
CARD_BRAKE = _card(
    "card_power_brake", "ratio", Kind.GAUGE, "share of time slowed by the power supply (0x80)", "names failing power", _REASONS
)
CARD_SLOWDOWN = _card("card_hardware_slowdown", "ratio", Kind.GAUGE, "share of time slowed by hardware (0x8)", _COOLING, _REASONS)
CARD_CAPPED = _card(
    "card_power_capped", "ratio", Kind.GAUGE, "share of time at the power limit (0x4), no fault", "explains clocks", _REASONS
)
CARD_XID = _card("card_xid", "1", Kind.GAUGE, "last XID of the driver that concerns hardware; 0: none", "names a failing card")
CARD_CORRECTED = _card(
    "card_corrected_errors",
    "1",
    Kind.COUNTER,
    "memory errors that ECC corrected",
    "names a card whose memory fails",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, counter, Total number of single-bit volatile ECC errors.",
)
CARD_UNCORRECTED = _card(
    "card_uncorrected_errors",
    "1",
    Kind.COUNTER,
    "memory errors that ECC could not correct",
    "names a card whose memory fails",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, Total number of double-bit volatile ECC errors.",
)
CARD_REMAPPED = _card("card_remapped_rows", "1", Kind.COUNTER, "memory rows replaced for uncorrected errors", "names failing memory")
CARD_REMAP_FAILED = _card("card_remap_failed", "1", Kind.GAUGE, "1 when a row could not be replaced", "names failing memory")
CARD_LINK_ERRORS = _card(
    "card_link_errors",
    "1",
    Kind.COUNTER,
    "NVLink checksum errors, replays and recoveries",
    "names a card with a bad link",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, counter, Total number of NVLink flow-control CRC errors.",
)
CARD_PCIE_REPLAYS = _card("card_pcie_replays", "1", Kind.COUNTER, "PCIe retries", "names a card with a bad slot or riser")
CARD_PCIE_WIDTH = _card(
    "card_pcie_width",
    "1",
    Kind.GAUGE,
    "PCIe lanes in use, of its narrowest card",
    "names a card with a bad slot or riser",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH, gauge, PCIe Link Width",
)


def _process(name: str, unit: str, kind: Kind, about: str, adds: str) -> str:
    """A signal of a rank's scheduler process."""
    return _signal(name, unit, kind, about, _PROCFS, adds, optional=True)


RUN_QUEUE_DELAY = _process(
    "run_queue_delay", "s", Kind.COUNTER, "time its main thread was ready but waited for a CPU", "shows a stolen CPU"
)
PROCESS_CPU = _process("process_cpu", "s", Kind.COUNTER, "CPU time of its main thread", "tells starved from busy where the engine does not")
INVOLUNTARY_SWITCHES = _process("involuntary_switches", "1", Kind.COUNTER, "times it was taken off its CPU", "shows a stolen CPU")
CGROUP_THROTTLED = _process("cgroup_throttled", "s", Kind.COUNTER, "time its cgroup was held at its CPU quota", "shows a quota too small")
PROCESS_STOPPED = _process(
    "process_stopped", "ratio", Kind.GAUGE, "share of looks that found it stopped (T)", "names the rank that stopped all"
)
PROCESS_BLOCKED = _process(
    "process_blocked", "ratio", Kind.GAUGE, "share of looks that found it in the kernel (D)", "shows a stuck driver or disk"
)
CPU_PRESSURE = _process("cpu_pressure", "s", Kind.COUNTER, "time some task of its node waited for a CPU", "shows a node short of CPUs")
FAR_FROM_CARD = _process(
    "far_from_card", "ratio", Kind.GAUGE, "share of looks that found it on another NUMA node than its card", "shows bad pinning"
)
