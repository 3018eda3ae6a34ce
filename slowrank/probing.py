"""Asks one rank after the other to prefill the same prompt, and measures how long each takes. IO.

The only part of slowrank that gives an engine work, so it is careful with it: one request at a time and a pause as long as each took, none
while the rank has a queue, a look at the engine's own counters before and after, and a connection that is closed, which makes the engine
drop the request, however this ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from collector import signals
from collector.engines.kinds import PATHS, READERS, Reader, recognise
from collector.errors import ConfigError, SlowrankError, SourceError
from collector.model import Page, Reading, Source
from collector.targets import Target
from diagnose import pinned
from slowrank.exits import UnreachableError

FRESH = 64
"""Tokens at the beginning that no request had before. Caches share prompts from their first block on, and blocks are 1 to 64 tokens."""

IDS = range(10, 250)
"""Token ids that are used: in every vocabulary, the smallest of which hold 256 bytes; ids below 10 are often special."""

QUEUE_S, LOOK_S = 30.0, 0.5
"""Seconds that a queue on the rank may take to go, and between two looks at it."""

ANSWER_S = 60.0
"""Seconds for one answer: 8,192 tokens take an H20 1.3 s, and a queue was waited for before."""

COUNTED = 0.9
"""Share of the prompt that the rank's own counter must have risen by: else a cache served it, or another rank did."""

_PAGE_S = 5.0  # for one page of loads


class AbstainedError(SlowrankError):
    """The engine could not be measured now; nothing is known of its cards."""


@dataclass(frozen=True, slots=True)
class Way:
    """How an engine is told which rank a prompt is for: path, body and headers of a request."""

    path: str
    request: Callable[[int, Sequence[int]], tuple[dict[str, Any], dict[str, str]]]
    source: Source
    field: str


def _generate(rank: int, tokens: Sequence[int]) -> tuple[dict[str, Any], dict[str, str]]:
    sampling = {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True}
    return {"input_ids": list(tokens), "sampling_params": sampling, "stream": True, "routed_dp_rank": rank}, {}


def _complete(rank: int, tokens: Sequence[int], model: str) -> tuple[dict[str, Any], dict[str, str]]:
    body = {"prompt": list(tokens), "max_tokens": 1, "temperature": 0.0, "ignore_eos": True, "stream": True}
    return (body | {"model": model} if model else body), {"X-data-parallel-rank": str(rank)}


def _way(source: Source, model: str) -> Way:
    if source is Source.VLLM_METRICS:
        return Way("/v1/completions", lambda rank, tokens: _complete(rank, tokens, model), source, "the header X-data-parallel-rank")
    return Way("/generate", _generate, source, "the field routed_dp_rank")


@dataclass(frozen=True, slots=True)
class Probe:
    """One answer: seconds to its first token, and the tokens that its rank prefilled meanwhile, others' included."""

    rank: int
    seconds: float
    tokens: float

    @property
    def pace(self) -> float:
        """Seconds per token that the rank prefilled: a prompt that had to share its steps is not slow for that."""
        return self.seconds / self.tokens


@dataclass(slots=True)
class Engine:
    """An engine that takes pinned prompts. `client` has its base URL and key."""

    client: httpx.Client
    name: str
    rng: random.Random
    ranks: tuple[int, ...] = ()
    _way: Way = field(init=False)
    _reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        """Finds out what engine it is, and its ranks. Raises UnreachableError, ConfigError for a page of no such engine."""
        status, body = self._get(PATHS[Source.SGLANG_LOADS])
        source = Source.SGLANG_LOADS
        if status == 404:
            status, body = self._get(PATHS[Source.VLLM_METRICS])
            source = recognise(body)
            if source is not Source.VLLM_METRICS:
                raise ConfigError(f"{self.name} has neither SGLang's /v1/loads nor vLLM's metrics; give the engine's own address")
        self._reader = READERS["vllm" if source is Source.VLLM_METRICS else "sglang"]()
        first = self._reading(source, status, body)
        self._way = _way(source, first.facts.model or "")
        self.ranks = tuple(sorted(first.values.get(signals.RUNNING, {})))
        if len(self.ranks) < 2:
            raise ConfigError(
                f"{self.name} shows {len(self.ranks)} rank; a probe compares ranks that one address serves: give that address"
            )

    def look(self) -> Reading:
        """The engine's counters, now."""
        return self._reading(self._way.source, *self._get(PATHS[self._way.source]))

    def ask(self, rank: int, count: int) -> Probe:
        """One prompt of `count` tokens on `rank`. Raises AbstainedError when the engine is too busy or answers too late, ConfigError when
        it refuses, SourceError when it does not do as asked."""
        before = self._unqueued(rank)
        body, headers = self._way.request(rank, self._prompt(count))
        begun = time.perf_counter()
        seconds = 0.0
        try:
            with self.client.stream("POST", self._way.path, json=body, headers=headers, timeout=httpx.Timeout(ANSWER_S)) as reply:
                if reply.status_code != 200:
                    self._refused(rank, reply)
                for line in reply.iter_lines():
                    if line.startswith("data:") and not seconds:
                        seconds = time.perf_counter() - begun
                        self._failed(rank, line)
                    if time.perf_counter() - begun > ANSWER_S:
                        break
        except httpx.TimeoutException:
            raise AbstainedError(
                f"rank {rank} gave no token in {ANSWER_S:.0f} s, and the request was taken back; is it stuck? slowrank diagnose {self.name}"
            ) from None
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.name} broke off a request for rank {rank}: {error or type(error).__name__}") from None
        if not seconds:
            raise SourceError(f"{self.name}{self._way.path} ended its answer for rank {rank} without an event of a token")
        return Probe(rank, seconds, self._computed(rank, count, before))

    def _prompt(self, count: int) -> list[int]:
        """The same tokens each time but for the first ones."""
        whole = len(IDS)
        fresh = [IDS[self.rng.randrange(whole)] for _ in range(min(FRESH, count))]
        return fresh + [IDS[(k * 97) % whole] for k in range(count - len(fresh))]  # 97 and 240 share no factor: all ids in turn

    def _unqueued(self, rank: int) -> Reading:
        """The engine's counters once nobody waits on the rank."""
        until = time.monotonic() + QUEUE_S
        while (found := self.look()).values.get(signals.WAITING, {}).get(rank, 0.0) > 0:
            if time.monotonic() > until:
                waiting = found.values[signals.WAITING][rank]
                raise AbstainedError(
                    f"{waiting:.0f} requests have waited on rank {rank} for {QUEUE_S:.0f} s: the engine is too busy to be measured; try at"
                    f" a quieter time, or see what queues: slowrank diagnose {self.name}"
                )
            time.sleep(LOOK_S)
        return found

    def _computed(self, rank: int, count: int, before: Reading) -> float:
        """Tokens that the rank prefilled since `before`; its page may be a step behind the answer."""
        until = time.monotonic() + _PAGE_S
        while True:
            after = self.look()
            grown = _grown(before, after)
            if grown.get(rank, 0.0) >= COUNTED * count:
                return grown[rank]
            if time.monotonic() > until:
                break
            time.sleep(LOOK_S / 5)
        if rank not in grown:
            raise SourceError(
                f"{self.name} does not count prompt tokens per rank, so a pin cannot be checked (SGLang >= 0.5.18, vLLM >= 0.9)"
            )
        most = max(grown, key=lambda one: grown[one])
        if most != rank and grown[most] >= COUNTED * count:
            raise SourceError(f"{self.name} does not honour {self._way.field}: a prompt for rank {rank} was computed on rank {most}")
        raise SourceError(
            f"rank {rank} computed {grown[rank]:,.0f} of a prompt's {count:,} tokens; something before the engine caches prompts"
        )

    def _refused(self, rank: int, reply: httpx.Response) -> None:
        said = reply.read()[:300].decode("utf-8", "replace")
        where = f"{self.name}{self._way.path}"
        match reply.status_code:
            case 401 | 403:
                raise ConfigError(f"{where}: HTTP {reply.status_code}, the engine wants a key; name its variable with --api-key-env NAME")
            case 404 | 405:
                raise ConfigError(f"{where}: HTTP {reply.status_code}, this address takes no prompts; give the API server's own address")
            case 429 | 503:
                raise AbstainedError(f"{where}: HTTP {reply.status_code} for rank {rank}, the engine takes no more work: {said!r}")
            case status:
                then = f"does it know {self._way.field}, is a shorter prompt (--tokens) what it can take?"
                raise ConfigError(f"{where}: HTTP {status} for rank {rank}: {said!r}; {then}")

    def _failed(self, rank: int, line: str) -> None:
        """SGLang answers 200 and then tells what is wrong in the stream."""
        if '"error"' in line[:400]:
            raise ConfigError(
                f"{self.name}{self._way.path} refused a prompt for rank {rank}: {line[5:300].strip()!r}; is --tokens too many?"
            )

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            reply = self.client.get(path, timeout=_PAGE_S)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.name}{path} does not answer: {error or type(error).__name__}") from None
        return reply.status_code, reply.content

    def _reading(self, source: Source, status: int, body: bytes) -> Reading:
        if status in {401, 403}:
            raise ConfigError(f"{self.name}: HTTP {status}, the engine wants a key; name its variable with --api-key-env NAME")
        page = Page(self.name, str(self.client.base_url).rstrip("/"), source, time.time(), 0.0, status, "", body)
        return self._reader.read(page)


def _grown(before: Reading, after: Reading) -> Mapping[int, float]:
    """Prompt tokens by rank that were computed between two readings."""
    old, new = before.values.get(signals.PREFILL_TOKENS, {}), after.values.get(signals.PREFILL_TOKENS, {})
    return {rank: value - old.get(rank, 0.0) for rank, value in new.items()}


def connect(target: Target) -> httpx.Client:
    """A client for node 0, which takes the requests."""
    headers = {"User-Agent": "slowrank"} | ({"Authorization": f"Bearer {target.api_key}"} if target.api_key else {})
    return httpx.Client(base_url=target.nodes[0], headers=headers, trust_env=False)


def run(
    engine: Engine, tokens: int, on_probe: Callable[[Probe], None], pause: Callable[[float], None] = time.sleep
) -> tuple[pinned.Verdict, list[Probe]]:
    """Rounds until the estimator is sure, or has had them all. Raises what `Engine.ask` raises; then no verdict is worth anything."""
    rounds: list[list[float]] = []
    probes: list[Probe] = []
    while True:
        paces: dict[int, float] = {}
        for rank in engine.rng.sample(engine.ranks, len(engine.ranks)):
            probe = engine.ask(rank, tokens)
            probes.append(probe)
            paces[rank] = probe.pace
            on_probe(probe)
            pause(probe.seconds)
        rounds.append([paces[rank] for rank in engine.ranks])
        verdict = pinned.judge(engine.ranks, rounds)
        if verdict.outcome is not pinned.Outcome.MORE:
            return verdict, probes
