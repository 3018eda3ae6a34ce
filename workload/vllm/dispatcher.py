"""The API servers of a vLLM deployment, all in one process: who deals the requests, and books what the engine cores put out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from workload.config import ClusterConfig
from workload.face.vllm import Life, VllmMetrics, grouped
from workload.flights import Flights
from workload.router_vllm import Coordinator, EngineLoad, ScoreRouter
from workload.traffic import Shape
from workload.vllm.settings import VllmFlags
from workload.vllm.wire import Output, Started, StartWave, Woken
from workload.wire import Abort, AsyncChannel, Submit


@dataclass(slots=True)
class _Flight:
    """A request on its way. `sent` by this process's clock, `last` (its last output) by the engine core's; both monotonic seconds."""

    rank: int  # the engine core
    server: int
    shape: Shape
    sent: float
    done: Callable[[], None]
    ordinary: bool  # not pinned to its engine by order
    started: Started | None = None
    first: float = 0.0
    last: float = 0.0
    preemptions: int = 0


class VllmDispatcher(Flights[_Flight]):
    """Deals requests to engines by each API server's own score. `metrics` hears of everything."""

    def __init__(self, config: ClusterConfig, flags: VllmFlags, metrics: VllmMetrics) -> None:
        super().__init__(config)
        servers = flags.api_servers
        self._routers = [ScoreRouter(config.ranks, servers, index) for index in range(servers)]
        self._coordinator = Coordinator(config.ranks, lockstep=flags.moe)
        self._metrics = metrics
        self._channels: list[AsyncChannel] = []
        self._wave = 0  # the latest that an engine has begun

    def connect(self, channels: list[AsyncChannel]) -> None:
        self._channels = channels

    def _choose(self, rid: int, request: Shape, pinned: int | None) -> int:  # noqa: ARG002  # the score knows no lengths
        if (loads := self._coordinator.publish(time.monotonic())) is not None:
            for router in self._routers:
                router.update(loads)
        router = self._routers[self._server(rid)]
        engine = router.choose(pinned)
        if pinned is None and (place := self._desk.place(engine)) != engine:
            router.finished(engine)
            engine = router.choose(place)
        return engine

    def _take_off(self, rid: int, rank: int, request: Shape, done: Callable[[], None], *, ordinary: bool) -> _Flight:
        return _Flight(rank, self._server(rid), request, time.monotonic(), done, ordinary)

    def _post(self, rank: int, message: Submit | Abort) -> None:
        self._channels[rank].send(message)

    def _aborted(self, flight: _Flight) -> None:
        self._routers[flight.server].finished(flight.rank)
        self._metrics.aborted(flight.rank)

    def _server(self, rid: int) -> int:
        """The API server that a request comes to: the kernel deals connections; evenly, in the mean."""
        return rid % len(self._routers)

    def heard(self, engine: int, message: Output | Woken) -> None:
        """What an engine core says; an output is looked at once the desk lets it through."""
        if isinstance(message, Woken):
            if message.wave > self._wave:
                self._wave = message.wave
                for channel in self._channels:
                    channel.send(StartWave(message.wave))
            return
        self._coordinator.report(time.monotonic(), engine, EngineLoad(message.waiting, message.running, message.kv_usage))
        if self._desk.held:
            asyncio.get_running_loop().call_later(self._desk.held, self._heard, engine, message)
        else:
            self._heard(engine, message)

    def _heard(self, engine: int, output: Output) -> None:
        now = time.monotonic()
        self._metrics.scheduler(
            engine,
            running=output.running,
            waiting=output.waiting,
            kv_usage=output.kv_usage,
            queries=output.queries,
            hits=output.hits,
        )
        for rid, times in output.preempted:
            self._metrics.preempted(engine, times)
            if (flight := self._flights.get(rid)) is not None:
                flight.preemptions += times
        computed = [0] * len(self._routers)
        generated = [0] * len(self._routers)
        for started in output.started:
            if (flight := self._flights.get(started.rid)) is not None:
                flight.started, flight.first = started, output.at
                computed[flight.server] += flight.shape.prompt - started.cached
                self._metrics.first_token(engine, prompt=flight.shape.prompt, cached=started.cached, ttft=now - flight.sent)
        gaps = []
        for rid in output.tokens:
            if (flight := self._flights.get(rid)) is None:
                continue
            generated[flight.server] += 1
            if flight.last:
                gaps.append(output.at - flight.last)
            flight.last = output.at
        for seconds, requests in grouped(gaps).items():
            self._metrics.gaps(engine, seconds, requests)
        # each API server that got an output sees an iteration: so the count is inflated where there are several
        for prompt_tokens, tokens in zip(computed, generated, strict=True):
            if tokens:
                self._metrics.iteration(engine, computed=prompt_tokens, generated=tokens)
        for rid in output.finished:
            if (flight := self._flights.pop(rid, None)) is not None:
                self._finished(flight, now)

    def _finished(self, flight: _Flight, now: float) -> None:
        if (started := flight.started) is not None:
            life = Life(
                prompt=flight.shape.prompt,
                cached=started.cached,
                generated=flight.shape.output,
                preemptions=flight.preemptions,
                e2e=now - flight.sent,
                queue=started.scheduled - started.queued,
                prefill=flight.first - started.scheduled,
                decode=flight.last - flight.first,
            )
            self._metrics.finished(flight.rank, life)
        self._routers[flight.server].finished(flight.rank)
        flight.done()
