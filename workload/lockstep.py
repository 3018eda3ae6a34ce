"""The loop of one rank's scheduler, in step with all others: SGLang's loop with overlap scheduling.

    receive + control broadcast -> take in requests -> schedule + exchange metadata -> launch step i -> wait for step i-1

The result that a rank waits for is one step old, so a whole step of the card's time covers the host's work on the next one:
a host that is late by less than that makes its peers wait in the exchange and costs nothing.
"""

from __future__ import annotations

import time
from typing import Any

from workload.device import Device, Work
from workload.exchange import Column, Exchange
from workload.reporter import Reporter, Step
from workload.scheduler import Batch, Request, Result, Scheduler
from workload.scheduling.decode_role import DecodeScheduler
from workload.scheduling.prefill_role import PrefillScheduler
from workload.scheduling.votes import GraphVotes, agree
from workload.wire import Abort, AcceptFactor, Busy, Channel, GraphVote, KvLinkFactor, KvReserve, Progress, Publisher, Submit

IDLE_SLEEP = 0.010  # seconds between two looks when no rank has anything to run
TELL_SECONDS = 0.25  # token gaps are told to the front end at most this rarely


class Lockstep:
    def __init__(
        self,
        exchange: Exchange,
        scheduler: Scheduler,
        device: Device,
        reporter: Reporter,
        votes: GraphVotes,
        frontend: Channel,
        control: Channel,
    ) -> None:
        self._exchange = exchange
        self._scheduler = scheduler
        self._device = device
        self._reporter = reporter
        self._votes = votes
        self._frontend = frontend
        self._control = control
        self._steps = 0
        self._in_flight: Step | None = None
        self._busy = 0.0  # CPU seconds to burn in each scheduling pass
        self._gaps: list[tuple[float, int]] = []
        self._told = 0.0
        self._decoded = 0.0  # when this rank's running requests got their last token; 0.0: none runs
        self._mark = time.monotonic()

    def iterate(self) -> None:
        """One turn of the loop. Raises PeerLostError when another process of the cluster is gone."""
        messages = self._frontend.drain()
        orders = self._control.drain()
        self._exchange.broadcast()
        self._stage("recv_requests")

        self._take_in(messages, orders)
        self._stage("process_input_requests")

        if isinstance(self._scheduler, PrefillScheduler | DecodeScheduler):
            self._turn(self._scheduler)
            self._stage("process_queue")

        burn(self._busy)
        batch = self._scheduler.next_batch()
        table, sync_wait = self._exchange.gather(self._votes.row(batch))
        self._stage("get_next_batch_to_run")

        step = self._launch(batch, table, sync_wait)
        self._stage("run_batch")

        last, self._in_flight = self._in_flight, step
        if last is not None:
            self._process(last)
        self._stage("process_batch_result")

        if last is None and step is None:
            self._idle()
        self._reporter.metrics.tick(time.monotonic())
        self._stage("other")

    def _take_in(self, messages: list[Any], orders: list[Any]) -> None:
        for message in messages:
            if isinstance(message, Submit):
                self._scheduler.submit(Request.of(message, time.monotonic()))
            elif isinstance(message, Abort):
                self._scheduler.abort(message.rids)
        for order in orders:
            self._obey(order)

    def _obey(self, order: Any) -> None:
        """Does what `workload.control` asks of a rank; it has checked that the rank can."""
        scheduler = self._scheduler
        match order:
            case Busy(seconds):
                self._busy = seconds
            case Publisher(stuck):
                self._reporter.publisher.stuck = stuck
            case GraphVote(allowed):
                self._votes.allowed = allowed
            case AcceptFactor(factor) if scheduler.acceptance is not None:
                scheduler.acceptance.factor = factor
            case KvLinkFactor(factor) if isinstance(scheduler, PrefillScheduler | DecodeScheduler):
                scheduler.link.factor = factor
            case KvReserve(tokens):
                scheduler.kv.reserve(tokens)
            case _:
                raise ValueError(f"a rank of a {type(scheduler).__name__} cannot obey {order}")

    def _turn(self, scheduler: PrefillScheduler | DecodeScheduler) -> None:
        """Moves the queues of a split engine, and tells the front end what came or went there."""
        turned = scheduler.advance(time.monotonic())
        self._reporter.turned(turned)
        if turned.tells:
            self._frontend.send(Progress(turned.first, turned.finished, [], turned.failed))

    def _launch(self, batch: Batch | None, table: list[tuple[int, ...]], sync_wait: float) -> Step | None:
        """Launches what was agreed on. A rank without work runs an idle batch while any other has some."""
        tokens = [row[Column.NUM_TOKENS] for row in table]
        if not any(tokens):
            self._reporter.launched(None)
            return None
        self._steps += 1
        agreed = agree(table)
        step = Step(
            number=self._steps,
            batch=batch,
            all_tokens=tokens,
            all_pairs=[row[Column.ATTENTION_PAIRS] for row in table],
            prefill_ranks=agreed.extending,
            graph=agreed.graph,
            converted=agreed.converted,
            sync_wait=sync_wait,
            launched=time.monotonic(),
        )
        self._device.launch(self._steps, work_of(batch, graph=agreed.graph))
        self._reporter.launched(step)
        if batch is not None:
            for request in batch.started:
                self._reporter.metrics.queue_time(step.launched - request.arrived)
        return step

    def _process(self, step: Step) -> None:
        ended = self._device.wait()
        now = time.monotonic()
        result = self._scheduler.complete(step.batch) if step.batch else Result()
        self._reporter.ended(step, ended, result, self._scheduler, now)
        self._tell(step, result, now)

    def _tell(self, step: Step, result: Result, now: float) -> None:
        if step.batch is None:
            self._decoded = 0.0
        elif step.batch.rows:
            tokens = result.generated - len(result.first)
            if self._decoded and tokens:
                # what one row got at once shares its gap
                self._gaps.append(((now - self._decoded) * min(1.0, step.batch.rows / tokens), tokens))
            self._decoded = now
        if result.first or result.finished or (self._gaps and now - self._told >= TELL_SECONDS):
            self._frontend.send(Progress(result.first, result.finished, self._gaps))
            self._gaps, self._told = [], now

    def _idle(self) -> None:
        start = time.monotonic()
        self._stage("other")
        time.sleep(IDLE_SLEEP)
        now = time.monotonic()
        self._reporter.idle(now - start, self._scheduler, now)
        self._stage("idle")

    def _stage(self, category: str) -> None:
        """Books the time since the last stage's end, so that all stages add up to the loop's wall time."""
        now = time.monotonic()
        self._reporter.metrics.stage(category, now - self._mark)
        self._mark = now


def work_of(batch: Batch | None, *, graph: bool) -> Work:
    """What the batch is for the card. A draft model's own time is left out: three passes through one layer, against 78."""
    if batch is None:
        return Work(graph=graph)
    return Work(
        decode_tokens=batch.rows * batch.width,
        decode_pairs=batch.row_pairs,
        prefill_tokens=batch.tokens - batch.rows,
        prefill_pairs=batch.pairs - batch.row_pairs,
        graph=graph,
    )


def burn(seconds: float) -> None:
    """Uses that much CPU of this thread; on a crowded machine that takes longer than `seconds` of wall time."""
    if seconds > 0:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
