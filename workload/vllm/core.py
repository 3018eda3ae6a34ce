"""The loop of one vLLM engine core, overlapped as with async scheduling: the next step is launched before the last one's result is in.

With experts to share (`exchange` is given) every forward begins with an all-reduce of batch metadata, and a core without work runs a
dummy batch. Every `SYNC_INTERVAL` steps the cores agree whether anybody still has work; if nobody has, the group pauses until a
request starts its next wave. Without, a core steps at its own pace and stands still when it has nothing to do.
"""

from __future__ import annotations

import select
import time
from typing import Any

from workload.device import Device
from workload.exchange import Column, Exchange
from workload.lockstep import burn, work_of
from workload.scheduling.request import Batch, Request, Result
from workload.scheduling.votes import GraphVotes, agree
from workload.vllm.scheduler import VllmScheduler
from workload.vllm.wire import Output, Started, StartWave, Woken
from workload.wire import Abort, Busy, Channel, GraphVote, KvReserve, Submit

SYNC_INTERVAL = 16  # --dp-sync-interval's default: steps between two agreements on whether anybody is busy; at step 1 too
_BLOCKED_SECONDS = 0.010  # between two looks of a dense core whose waiting requests find no KV


class EngineCore:
    def __init__(
        self,
        exchange: Exchange | None,
        scheduler: VllmScheduler,
        device: Device,
        votes: GraphVotes,
        frontend: Channel,
        control: Channel,
    ) -> None:
        self._exchange = exchange
        self._scheduler = scheduler
        self._device = device
        self._votes = votes
        self._frontend = frontend
        self._control = control
        self._busy = 0.0  # CPU seconds to burn in each scheduling pass
        self._launched = 0
        self._in_flight: list[Batch | None] = []  # launched and not waited for; None: a dummy
        self._scheduled: dict[int, float] = {}  # when requests without a token yet were first scheduled
        self._queries = self._hits = 0
        self._aborted = False  # since the last output
        self._paused = exchange is not None
        self._waves = 0  # that have ended
        self._asked = 0  # the latest wave that the coordinator wants
        self._wave_steps = 0

    def iterate(self) -> None:
        """One turn of the loop. Raises PeerLostError when another process of the cluster is gone."""
        if self._exchange is None:
            self._dense()
        elif self._paused:
            self._rest()
        else:
            self._lockstep(self._exchange)
        if self._aborted and not any(self._in_flight):
            # vLLM runs an empty step to clear what was aborted: without its output an engine with nothing to run would show an
            # aborted request as waiting for good
            self._tell([], Result())

    def _rest(self) -> None:
        """Waits for whoever starts the next wave: a request of our own, or the coordinator."""
        if self._asked <= self._waves:
            select.select([self._frontend, self._control], [], [])
            self._take_in()
        if self._asked <= self._waves and not self._scheduler.idle:
            self._frontend.send(Woken(self._waves + 1))
            self._asked = self._waves + 1
        if self._asked > self._waves:
            self._paused, self._wave_steps = False, 0

    def _lockstep(self, exchange: Exchange) -> None:
        self._take_in()
        batch = self._schedule()
        table, _ = exchange.gather(self._votes.row(batch))
        self._launch(batch, graph=agree(table).graph)
        if len(self._in_flight) > 1:
            self._process()
        self._wave_steps += 1
        if self._wave_steps == 1 or self._wave_steps % SYNC_INTERVAL == 0:
            self._agree(exchange)

    def _agree(self, exchange: Exchange) -> None:
        row = [0] * len(Column)
        row[Column.NUM_TOKENS] = int(not self._scheduler.idle)
        table, _ = exchange.gather(row)
        if any(busy[Column.NUM_TOKENS] for busy in table):
            return
        while self._in_flight:
            self._process()
        self._waves += 1
        self._paused = True

    def _dense(self) -> None:
        if not self._in_flight:
            # nothing to do, or no KV for those who wait
            select.select([self._frontend, self._control], [], [], None if self._scheduler.idle else _BLOCKED_SECONDS)
        self._take_in()
        batch = self._schedule()
        if batch is not None:
            self._launch(batch, graph=agree([self._votes.row(batch)]).graph)
        if len(self._in_flight) > 1 or (batch is None and self._in_flight):
            self._process()

    def _take_in(self) -> None:
        for message in self._frontend.drain():
            match message:
                case Submit():
                    self._scheduler.submit(Request.of(message, time.monotonic()))
                case Abort(rids):
                    self._scheduler.abort(rids)
                    for rid in rids:
                        self._scheduled.pop(rid, None)
                    self._aborted = True
                case StartWave(wave):
                    self._asked = max(self._asked, wave)
        for order in self._control.drain():
            self._obey(order)

    def _obey(self, order: Any) -> None:
        match order:
            case Busy(seconds):
                self._busy = seconds
            case GraphVote(allowed):
                self._votes.allowed = allowed
            case KvReserve(tokens):
                self._scheduler.kv.reserve(tokens)
            case _:
                raise ValueError(f"a vLLM engine core cannot obey {order}")

    def _schedule(self) -> Batch | None:
        burn(self._busy)
        return self._scheduler.next_batch()

    def _launch(self, batch: Batch | None, *, graph: bool) -> None:
        self._launched += 1
        self._device.launch(self._launched, work_of(batch, graph=graph))
        self._in_flight.append(batch)
        if batch is None:
            return
        now = time.monotonic()
        for request in batch.started:
            self._scheduled.setdefault(request.rid, now)
            self._queries += request.prompt
            self._hits += request.cached

    def _process(self) -> None:
        batch = self._in_flight.pop(0)
        self._device.wait()
        if batch is not None:
            alive = [r for r in batch.requests if not r.aborted]
            self._tell(alive, self._scheduler.complete(batch))

    def _tell(self, alive: list[Request], result: Result) -> None:
        """Puts out a step's result: `alive` are the requests that got a token."""
        scheduler, first = self._scheduler, set(result.first)
        self._frontend.send(
            Output(
                at=time.monotonic(),
                running=scheduler.unfinished,
                waiting=len(scheduler.waiting),
                kv_usage=scheduler.kv.used / scheduler.kv.capacity,
                queries=self._queries,
                hits=self._hits,
                tokens=[r.rid for r in alive],
                started=[Started(r.rid, r.arrived, self._scheduled.pop(r.rid), r.cached) for r in alive if r.rid in first],
                finished=result.finished,
                preempted=scheduler.take_preempted([r.rid for r in alive]),
            )
        )
        self._queries = self._hits = 0
        self._aborted = False
