"""The API servers of a vLLM deployment, all in one process: who deals the requests, and books what the engine cores put out."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from workload.config import ClusterConfig
from workload.desk import AWAY_SECONDS, Desk
from workload.face.vllm import Life, VllmMetrics, grouped
from workload.router_vllm import Coordinator, EngineLoad, ScoreRouter
from workload.traffic import Shape
from workload.vllm.settings import VllmFlags
from workload.vllm.wire import Output, Started, StartWave, Woken
from workload.wire import Abort, AsyncChannel, DeskOrder, Submit


@dataclass(slots=True)
class _Flight:
    """A request on its way. `sent` by this process's clock, `last` (its last output) by the engine core's; both monotonic seconds."""

    engine: int
    server: int
    shape: Shape
    sent: float
    done: Callable[[], None]
    ordinary: bool  # not pinned to its engine by order
    started: Started | None = None
    first: float = 0.0
    last: float = 0.0
    preemptions: int = 0


class VllmDispatcher:
    """Deals requests to engines by each API server's own score. `metrics` hears of everything."""

    def __init__(self, config: ClusterConfig, flags: VllmFlags, metrics: VllmMetrics) -> None:
        servers = flags.api_servers
        self._routers = [ScoreRouter(config.ranks, servers, index) for index in range(servers)]
        self._coordinator = Coordinator(config.ranks, lockstep=flags.moe)
        self._desk = Desk(config.ranks, config.seed)
        self._metrics = metrics
        self._channels: list[AsyncChannel] = []
        self._flights: dict[int, _Flight] = {}
        self._rids = itertools.count()
        self._wave = 0  # the latest that an engine has begun

    def connect(self, channels: list[AsyncChannel]) -> None:
        self._channels = channels

    def send(self, request: Shape, done: Callable[[], None], pinned: int | None = None) -> int:
        """Routes a request; `done` is called when it has finished. Returns its id."""
        now = time.monotonic()
        rid = next(self._rids)
        if pinned is None and self._desk.closed:
            asyncio.get_running_loop().call_later(AWAY_SECONDS, done)
            return rid
        if (loads := self._coordinator.publish(now)) is not None:
            for router in self._routers:
                router.update(loads)
        server = rid % len(self._routers)  # the kernel deals connections; evenly, in the mean
        engine = self._routers[server].choose(pinned)
        if pinned is None:
            if (place := self._desk.place(engine)) != engine:
                self._routers[server].finished(engine)
                engine = self._routers[server].choose(place)
            request = self._desk.shape(engine, request)
        self._flights[rid] = _Flight(engine, server, request, now, done, ordinary=pinned is None)
        self._channels[engine].send(Submit(rid, request.prompt, request.cached, request.output, request.prefix, request.keeps))
        return rid

    def abort(self, rids: list[int]) -> None:
        by_engine: dict[int, list[int]] = {}
        for rid in rids:
            if (flight := self._flights.pop(rid, None)) is not None:
                by_engine.setdefault(flight.engine, []).append(rid)
                self._routers[flight.server].finished(flight.engine)
                self._metrics.aborted(flight.engine)
        for engine, gone in by_engine.items():
            self._channels[engine].send(Abort(gone))

    def order(self, order: DeskOrder) -> None:
        self._desk.obey(order)
        if self._desk.closed and (gone := {rid: flight.done for rid, flight in self._flights.items() if flight.ordinary}):
            self.abort(sorted(gone))
            for done in gone.values():
                asyncio.get_running_loop().call_later(AWAY_SECONDS, done)

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
            self._metrics.finished(flight.engine, life)
        self._routers[flight.server].finished(flight.engine)
        flight.done()
