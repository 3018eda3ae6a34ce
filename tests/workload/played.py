"""A cluster played in virtual time, and what its counters say between two scrapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workload.config import ClusterConfig, Lengths
from workload.schedule import parse
from workload.virtual_time.simulate import simulate
from workload.virtual_time.table import Table


@dataclass
class Window:
    """Per step of the group, between two scrapes. Lists have one value per rank, times are seconds."""

    table: Table
    first: float
    last: float

    def grown(self, name: str) -> np.ndarray:
        values, times = self.table.counter(name), self.table.metrics_times
        low, high = np.searchsorted(times, [self.first, self.last])
        return np.asarray(values[high] - values[low])

    @property
    def steps(self) -> float:
        return float(
            self.grown('dp_attention_steps_total{rank_state="active"}')[0] + self.grown('dp_attention_steps_total{rank_state="idle"}')[0]
        )

    @property
    def cadence(self) -> float:
        return (self.last - self.first) / self.steps

    @property
    def exchange(self) -> np.ndarray:
        return self.grown("dp_attention_sync_wait_seconds_sum") / self.steps

    @property
    def waits(self) -> np.ndarray:
        return self.exchange + self.grown('scheduler_stage_seconds_total{category="recv_requests",forward_overlap="none"}') / self.steps

    @property
    def pairs(self) -> np.ndarray:
        return self.grown('dp_attention_pairs_total{kind="scheduled"}') / self.steps

    @property
    def cpu(self) -> np.ndarray:
        return self.grown("scheduler_process_cpu_seconds_total") / self.steps

    @property
    def balancedness(self) -> float:
        parts = [self.grown(f'eplb_balancedness_{part}{{forward_mode="decode"}}')[0] for part in ("sum", "count")]
        return float(parts[0] / parts[1])


def play(*faults: str, seconds: float = 60.0, config: ClusterConfig | None = None, prepare=lambda _: None) -> Table:
    table = Table()
    simulate(config or ClusterConfig(seed=3), [parse(text) for text in faults], seconds, table, metrics_every=1.0, prepare=prepare)
    return table


def exactly(tokens: int) -> Lengths:
    return Lengths(tokens, 0, tokens, tokens)
