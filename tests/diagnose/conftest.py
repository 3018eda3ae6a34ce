"""A plant: windows made by the lockstep arithmetic of docs/physics.md, with the truth known. Shared by the diagnosis tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from collector import signals
from collector.model import Engine, Facts, Window

KV_BYTES = 44_928.0  # 576 B x 78 layers
H20 = 4.0e12  # bytes per second
EFFICIENCY = 0.75


@dataclass(frozen=True)
class Plant:
    """An engine whose step time follows C = max(device, host): device = (base + s max pairs) x group + experts, host = work + delay."""

    ranks: int = 8
    seconds: int = 12
    base: float = 0.036
    host: float = 0.004
    accelerator: str | None = "NVIDIA H20"
    kv_bytes: float | None = KV_BYTES
    running: Sequence[float] = field(default_factory=lambda: (8.0,) * 64)
    length: Sequence[float] = field(default_factory=lambda: (6000.0,) * 64)
    delay: Mapping[int, float] = field(default_factory=dict)  # late ranks: seconds per step
    cpu: Mapping[int, float] = field(default_factory=dict)  # ranks whose scheduler uses more CPU: factor
    prefill: Mapping[int, float] = field(default_factory=dict)  # share of time in prefill steps, three times a decode step
    balancedness: float | None = 0.85
    hot: int | None = None
    experts: float = 0.0  # seconds per step added by the hottest card
    group: float = 1.0  # factor on every card
    eager: float = 0.0  # share of decode passes without a graph
    retracted: Mapping[int, float] = field(default_factory=dict)  # requests per second
    cached: Mapping[int, float] = field(default_factory=dict)  # share of prompt tokens in the prefix cache; the others' is 0.98
    prompts: Mapping[int, float] = field(default_factory=dict)  # prompt tokens per second; the others' is 8000
    frozen: Mapping[int, float] = field(default_factory=dict)  # snapshot age at the end
    timer: bool = True
    role: str | None = "unified"
    held: Mapping[int, float] = field(default_factory=dict)  # requests in the hand-over of a split engine; the others' is 0.1
    accept: Mapping[int, float] = field(default_factory=dict)  # tokens per request and step; given for one, the others' is 2.5, else 1
    dispatch: Mapping[int, float] = field(default_factory=dict)  # wait in dispatch over the node's others; given for one, the others' is 1
    awaited: Mapping[int, float] = field(default_factory=dict)  # how much longer the others wait for it in dispatch; as `dispatch`
    sends: Mapping[int, float] = field(default_factory=dict)  # prefill server: KV bytes per second; the others' is 50e9
    cards: bool = False  # the cards were read too
    throttled: Mapping[int, float] = field(default_factory=dict)  # share of their peers' clock at which these run, for heat
    corrected: Mapping[int, float] = field(default_factory=dict)  # corrected memory errors per second
    xid: Mapping[int, int] = field(default_factory=dict)
    link_errors: Mapping[int, float] = field(default_factory=dict)  # per second
    processes: bool = False  # the ranks' processes were read too
    queued: Mapping[int, float] = field(default_factory=dict)  # seconds per second ready without a CPU
    quota: Mapping[int, float] = field(default_factory=dict)  # seconds per second held at the cgroup's quota
    stopped: tuple[int, ...] = ()
    turns: float = 0.0  # share of steps in which one of the ranks, each in its turn, prefills: three times a plain step
    burst: Mapping[int, float] = field(default_factory=dict)  # requests that come at once every five seconds and are gone after two
    kept: float = 0.0  # seconds for which the front end keeps each answer
    moody: bool = False  # the delays fall to three tenths every third second

    @property
    def pair_cost(self) -> float:
        return KV_BYTES / (H20 * EFFICIENCY)

    @property
    def pairs(self) -> np.ndarray:
        return np.array([n * length for n, length in zip(self.running, self.length, strict=False)][: self.ranks])

    @property
    def device(self) -> float:
        return (self.base + self.pair_cost * float(self.pairs.max())) * self.group + self.experts

    @property
    def plain(self) -> float:
        """Seconds of a step without prefill."""
        return max(self.device, self.host + max(self.delay.values(), default=0.0))

    @property
    def step_time(self) -> float:
        """Mean seconds per step: prefill steps take three times a plain one and fill the share of time given for the busiest rank."""
        share = max(self.prefill.values(), default=0.0)
        return (1.0 + 2.0 * self.turns) / ((1.0 - share) / self.plain + share / (3.0 * self.plain))

    def window(self) -> Window:
        rng = np.random.default_rng(7)
        rows, columns, c = self.ranks, self.seconds, self.step_time
        steps = 1.0 / c

        def noisy(values: Sequence[float] | np.ndarray | float, spread: float = 0.01) -> np.ndarray:
            level = np.broadcast_to(np.asarray(values, dtype=np.float64), (rows,))[:, None]
            return level * (1.0 + spread * rng.standard_normal((rows, columns)))

        def each(special: Mapping[int, float], usual: float) -> np.ndarray:
            return np.array([special.get(r, usual) for r in range(rows)])

        lateness = each(self.delay, 0.0)
        wait = (lateness.max() - lateness) + 0.0006 + 0.0001 * (np.arange(rows) % 3)
        tree = np.array([0.4 if r % 2 else 0.6 for r in range(rows)])  # how the wait splits between broadcast and gather
        prefill = each(self.prefill, 0.0)
        hits = each(self.cached, 0.98)
        prompts = each(self.prompts, 8000.0)
        decode_steps = np.where(prefill > 0, (1.0 - prefill) / self.plain, steps)
        decode_time = np.where(prefill > 0, 1.0 - prefill, 1.0)
        own = self.turns / rows  # of the steps of each rank
        touched = (self.turns - own) / (1.0 - own)  # of its decode steps, by a peer's prefill
        if self.turns:
            decode_steps = np.full(rows, (1.0 - own) * steps)
            decode_time = decode_steps * self.plain * (1.0 + 2.0 * touched)
            prefill = np.full(rows, own * steps * 3.0 * self.plain)
        passes = steps - prefill / (3.0 * self.plain)
        eager = max(self.eager, touched)
        running = np.array(self.running[:rows])
        busy = running > 0  # the others step along
        mood = np.where(np.arange(columns) % 3 == 2, 0.3, 1.0) if self.moody else np.ones(columns)
        came = each(self.burst, 0.0)[:, None] * (np.arange(columns) % 5 < 2)
        held = each(self.held, 0.1)
        hand_over = {"prefill": signals.INFLIGHT_QUEUE, "decode": signals.TRANSFER_QUEUE}.get(self.role or "")
        empty = (signals.BOOTSTRAP_QUEUE, signals.INFLIGHT_QUEUE, signals.PREALLOC_QUEUE, signals.TRANSFER_QUEUE)
        values = {
            **{name: noisy(held if name == hand_over else 0.0, 0.0) for name in empty},
            signals.TRANSFER_SPEED: noisy(each(self.sends, 50e9) if self.role == "prefill" else 0.0, 0.0),
            signals.TRANSFER_LATENCY: noisy(0.005 if self.role == "prefill" else 0.0, 0.0),
            signals.ACCEPT_LENGTH: noisy(each(self.accept, 2.5) if self.accept else 1.0, 0.01 if self.accept else 0.0),
            signals.RUNNING: noisy(running, 0.0) + came,
            signals.WAITING: noisy(held if self.role == "decode" else 0.0, 0.0),
            signals.RESIDENT_TOKENS: noisy(self.pairs, 0.002),
            signals.SNAPSHOT_AGE: np.maximum.accumulate(
                np.where(np.arange(columns) == columns - 1, each(self.frozen, 0.3)[:, None], 0.3), axis=1
            ),
            signals.PREFILL_TOKENS: noisy(prompts * (1.0 - hits) + own * steps * 1024.0, 0.0),  # chunks of 1024
            signals.PREFILL_BUSY: noisy(prefill, 0.0),
            signals.DECODE_STEPS: noisy(decode_steps * busy, 0.0),
            signals.DECODE_TIME: noisy(decode_time * busy, 0.002),
            signals.ATTENTION_TOKENS: noisy(running * steps, 0.0),
            signals.ATTENTION_PAIRS: noisy(self.pairs * steps, 0.002),
            signals.IMBALANCE_PAIRS: noisy((self.pairs.max() - self.pairs) * steps, 0.0),
            signals.STEPS_ACTIVE: noisy(steps * busy, 0.0),
            signals.STEPS_IDLE: noisy(steps * ~busy, 0.0),
            signals.RECV_WAIT: noisy(wait * tree * steps, 0.05) * mood,
            signals.SYNC_WAIT: noisy(wait * (1 - tree) * steps, 0.05) * mood,
            signals.SCHEDULER_WORK: noisy(self.host * steps + lateness * steps),
            signals.SCHEDULER_CPU: noisy(each(self.cpu, 1.0) * self.host * steps),
            signals.RETRACTED: noisy(each(self.retracted, 0.0), 0.0),
            signals.KV_USAGE: noisy(np.where(each(self.retracted, 0.0) > 0, 0.99, 0.1), 0.0),
            signals.CACHED_TOKENS: noisy(prompts * hits, 0.0),
            signals.GRAPH_STEPS: noisy(passes * busy * (1.0 - eager), 0.0),
            signals.EAGER_STEPS: noisy(passes * busy * eager, 0.0),
        }
        values[signals.FIRST_TOKENS] = np.full((1, columns), float(rows))  # one a second on each rank
        values[signals.FIRST_TOKEN_TIME] = np.full((1, columns), rows * (3.0 * c + self.kept))
        if len(self.frozen) == rows:  # one stopped rank stops all: no step is counted from then on
            going = np.arange(columns) < columns - min(self.frozen.values())
            stopping = (signals.STEPS_ACTIVE, signals.DECODE_STEPS, signals.DECODE_TIME, signals.ATTENTION_TOKENS, signals.ATTENTION_PAIRS)
            values |= {name: values[name] * going for name in stopping}
        if self.timer:
            device = self.device * (c / self.plain)
            values[signals.FORWARD_TIME] = noisy(device * steps, 0.0)
        if self.balancedness is not None:
            values[signals.BALANCEDNESS_COUNT] = np.full((1, columns), steps)
            values[signals.BALANCEDNESS_SUM] = np.full((1, columns), steps * self.balancedness)
            load = each({} if self.hot is None else {self.hot: 6.0}, 1.0)
            values[signals.EXPERT_LOAD] = noisy(load * 1000.0)
        if self.dispatch or self.awaited:
            values[signals.DISPATCH_WAIT] = noisy(each(self.dispatch, 1.0))
            values[signals.DISPATCH_AWAITED] = noisy(each(self.awaited, 1.0))
        if self.cards:
            heat = each(dict.fromkeys(self.throttled, 1.0), 0.0)
            values |= {
                signals.CARD_CLOCK: noisy(1.98e9 * each(self.throttled, 1.0), 0.002),
                signals.CARD_MEMORY_CLOCK: noisy(3.2e9, 0.0),
                signals.CARD_THERMAL: noisy(heat, 0.0),
                signals.CARD_SLOWDOWN: noisy(0.0, 0.0),
                signals.CARD_BRAKE: noisy(0.0, 0.0),
                signals.CARD_CAPPED: noisy(0.0, 0.0),
                signals.CARD_XID: noisy(each(self.xid, 0.0), 0.0),
                signals.CARD_CORRECTED: noisy(each(self.corrected, 0.0), 0.0),
                signals.CARD_UNCORRECTED: noisy(0.0, 0.0),
                signals.CARD_LINK_ERRORS: noisy(each(self.link_errors, 0.0), 0.0),
                signals.CARD_PCIE_REPLAYS: noisy(0.0, 0.0),
            }
        if self.processes:
            values |= {
                signals.RUN_QUEUE_DELAY: noisy(each(self.queued, 0.002)),
                signals.CGROUP_THROTTLED: noisy(each(self.quota, 0.0)),
                signals.PROCESS_STOPPED: noisy(each(dict.fromkeys(self.stopped, 1.0), 0.0), 0.0),
                signals.PROCESS_BLOCKED: noisy(0.0, 0.0),
                signals.PROCESS_CPU: noisy(each(self.cpu, 1.0) * self.host * steps),
            }
        facts = Facts(version="0.5.23", role=self.role, accelerator=self.accelerator, kv_bytes_per_token=self.kv_bytes, expected_ranks=rows)
        return Window(
            engine=Engine("http://engine:30000", "sglang", facts),
            edges=1_800_000_000.0 + np.arange(columns + 1, dtype=np.float64),
            ranks=tuple(range(rows)),
            values=values,
            scrapes=2 * columns,
        )


def as_stated(stated: float, _rule: str) -> float:
    """Confidence as rules state it: what holds of it for every window; the table of labelled runs moves each rule's by its own record."""
    return stated


@pytest.fixture
def plant() -> type[Plant]:
    return Plant


def _long_on(rank: int, length: float = 60_000.0) -> tuple[float, ...]:
    return tuple(length if r == rank else 6000.0 for r in range(64))


def _many_on(rank: int, count: float = 120.0) -> tuple[float, ...]:
    return tuple(count if r == rank else 8.0 for r in range(64))


SCENES: dict[str, Plant] = {
    "healthy": Plant(),
    "context_length_skew": Plant(length=_long_on(0, 100_000.0)),
    "request_count_skew": Plant(running=_many_on(6)),
    "long_prefill": Plant(prefill={2: 0.7}, cached={2: 0.0}, prompts={2: 40_000.0}),
    "prefix_cache_skew": Plant(prefill={2: 0.7}, cached={2: 0.3}, prompts={2: 9000.0}),
    "kv_pressure": Plant(prefill={2: 0.7}, cached={2: 0.3}, prompts={2: 20_000.0}, retracted={2: 0.5}),
    "graph_fallback": Plant(base=0.042, eager=1.0),
    "host_cpu_starved": Plant(delay={5: 0.060}),
    "slow_node": Plant(delay=dict.fromkeys((1, 2, 3), 0.060)),
    "slow_rank": Plant(delay={3: 0.060}, cpu={3: 8.0}),
    "expert_hotspot": Plant(experts=0.015, balancedness=0.3, hot=4),
    "whole_group_slow": Plant(group=1.4),
    "stuck_rank": Plant(frozen=dict.fromkeys(range(8), 11.0)),
    "stale_ledger": Plant(frozen={6: 11.0}),
    "pd_queue_skew": Plant(role="decode", held={7: 6.0}),
    "speculation_skew": Plant(accept={4: 1.1}),
    "dispatch_skew": Plant(group=1.4, dispatch={6: 8.0}),
    "gpu_throttled": Plant(group=1.3, cards=True, throttled={3: 0.4}),
    "gpu_degraded": Plant(group=1.3, cards=True, corrected={1: 20.0}, xid={1: 94}),
    "link_degraded": Plant(group=1.3, cards=True, link_errors={6: 40.0}),
    "prefill_drags_decode": Plant(turns=0.6),
    "burst_misrouted": Plant(prefill={2: 0.5}, cached={2: 0.0}, prompts={2: 9000.0}, burst={2: 20.0}),
    "idle_lockstep": Plant(running=(2.0, *(0.0,) * 63)),
    "outside_the_ranks": Plant(kept=1.0),
    "slow_process": Plant(delay={3: 0.060}, cpu={3: 8.0}, moody=True),
}
"""Every cause with the plant that shows it; the culprits are in CULPRITS."""

CULPRITS: dict[str, tuple[int, ...]] = {
    "context_length_skew": (0,),
    "request_count_skew": (6,),
    "long_prefill": (2,),
    "prefix_cache_skew": (2,),
    "kv_pressure": (2,),
    "graph_fallback": (),
    "host_cpu_starved": (5,),
    "slow_node": (1, 2, 3),
    "slow_rank": (3,),
    "expert_hotspot": (4,),
    "whole_group_slow": (),
    "stuck_rank": (),
    "stale_ledger": (6,),
    "pd_queue_skew": (7,),
    "speculation_skew": (4,),
    "dispatch_skew": (6,),
    "gpu_throttled": (3,),
    "gpu_degraded": (1,),
    "link_degraded": (6,),
    "prefill_drags_decode": (),
    "burst_misrouted": (2,),
    "idle_lockstep": (0,),
    "outside_the_ranks": (),
    "slow_process": (3,),
}


@pytest.fixture
def scenes() -> dict[str, Plant]:
    return SCENES


@pytest.fixture
def culprits() -> dict[str, tuple[int, ...]]:
    return CULPRITS
