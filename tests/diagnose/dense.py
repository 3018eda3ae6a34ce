"""vLLM engines with and without a common clock: windows made by arithmetic, with the truth known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from collector import signals
from collector.model import Clock, Engine, Window
from diagnose.engine import diagnose


@dataclass(frozen=True)
class Dense:
    """vLLM engines: a step of rank r takes (base + per_token x tokens + per_kv x KV tokens) x slow[r]; with a clock, the longest of all."""

    ranks: int = 4
    seconds: int = 20
    running: Sequence[float] = (8.0,) * 64
    length: Sequence[float] = (4000.0,) * 64  # KV tokens of a request
    prompts: Sequence[float] = (2.0,) * 64  # prompt tokens per step
    answers: Sequence[float] = (100.0,) * 64  # tokens of an answer: so many steps lie between two requests' beginnings
    slow: Mapping[int, float] = field(default_factory=dict)
    stopped: Mapping[int, float] = field(default_factory=dict)  # seconds ago
    clock: Clock = Clock.NONE
    base: float = 0.010
    per_token: float = 0.0001
    per_kv: float = 1e-8
    per_begun: float = 0.0  # of a step in which a request begins
    queued: float = 0.0  # seconds that a request queues
    kept: float = 0.0  # seconds that its first token takes outside the ranks

    def window(self) -> Window:
        rng = np.random.default_rng(3)
        rows, columns = self.ranks, self.seconds
        running, length, prompts, answers = (np.array(x[:rows]) for x in (self.running, self.length, self.prompts, self.answers))
        tokens, kv, begun = running + prompts, running * length, running / answers
        steps = (self.base + self.per_token * tokens + self.per_kv * kv + self.per_begun * np.minimum(begun, 1.0)) * np.array(
            [self.slow.get(r, 1.0) for r in range(rows)]
        )
        if self.clock is Clock.FORWARD:
            steps = np.full(rows, steps.max())
        noisy = steps[:, None] * (1 + 0.01 * rng.standard_normal((rows, columns)))
        left = np.array([self.stopped.get(r, 0.0) for r in range(rows)])
        going = (np.arange(columns)[None, :] < columns - left[:, None]) & (running > 0)[:, None]
        rate = np.where(going, 1.0 / noisy, 0.0)
        kv_usage = np.cumsum(np.where(going, 1e-6, 0.0), axis=1) + (kv / 1e6)[:, None]
        flat = np.ones((1, columns))
        values = {
            signals.RUNNING: running[:, None] * flat,
            signals.WAITING: np.zeros((rows, columns)),
            signals.KV_USAGE: kv_usage,
            signals.RESIDENT_TOKENS: kv_usage * 1e6,
            signals.PREFILL_TOKENS: prompts[:, None] * rate,
            signals.CACHED_TOKENS: np.zeros((rows, columns)),
            signals.ATTENTION_TOKENS: tokens[:, None] * rate,
            signals.RETRACTED: np.zeros((rows, columns)),
            signals.DECODE_TIME: np.where(going, 1.0, 0.0),
            signals.DECODE_STEPS: rate,
            signals.STEPS_ACTIVE: rate,
            signals.STEPS_IDLE: np.zeros((rows, columns)),
            signals.ACCEPT_LENGTH: np.ones((rows, columns)),
            signals.FINISHED_REQUESTS: begun[:, None] * rate,
            signals.REQUEST_QUEUE_TIME: self.queued * begun[:, None] * rate,
            signals.REQUEST_PREFILL_TIME: 2.0 * begun[:, None] * np.where(going, 1.0, 0.0),  # two steps
        }
        first = (begun[:, None] * rate).sum(axis=0, keepdims=True)
        values[signals.FIRST_TOKENS] = first
        values[signals.FIRST_TOKEN_TIME] = first * (self.queued + self.kept) + 3.0 * begun.sum() * flat  # three steps
        if self.clock is Clock.UNKNOWN:
            del values[signals.STEPS_IDLE]
        edges = 1.8e9 + np.arange(columns + 1.0)
        return Window(Engine("http://e:8000", "vllm", clock=self.clock), edges, tuple(range(rows)), values, columns)


def verdict(plant: Dense, past: Dense | None = None):
    return diagnose(plant.window(), past.window() if past else None).verdict
