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
from workload.wire import Abort, Busy, Channel, Progress, Submit

IDLE_SLEEP = 0.010  # seconds between two looks when no rank has anything to run
TELL_SECONDS = 0.25  # token gaps are told to the front end at most this rarely

_EXTEND, _DECODE, _IDLE = 1, 2, 4  # SGLang's ForwardMode


class Lockstep:
    def __init__(
        self, exchange: Exchange, scheduler: Scheduler, device: Device, reporter: Reporter, frontend: Channel, control: Channel
    ) -> None:
        self._exchange = exchange
        self._scheduler = scheduler
        self._device = device
        self._reporter = reporter
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

        _burn(self._busy)
        batch = self._scheduler.next_batch()
        table, sync_wait = self._exchange.gather(_row(batch))
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
                self._scheduler.submit(Request(message.rid, message.prompt, message.cached, message.output, time.monotonic()))
            elif isinstance(message, Abort):
                self._scheduler.abort(message.rids)
        for order in orders:
            if isinstance(order, Busy):
                self._busy = order.seconds

    def _launch(self, batch: Batch | None, table: list[tuple[int, ...]], sync_wait: float) -> Step | None:
        """Launches what was agreed on. A rank without work runs an idle batch while any other has some."""
        tokens = [row[Column.NUM_TOKENS] for row in table]
        if not any(tokens):
            self._reporter.launched(None)
            return None
        self._steps += 1
        graph = all(row[Column.DECODE_GRAPH] for row in table)
        step = Step(
            number=self._steps,
            batch=batch,
            all_tokens=tokens,
            all_pairs=[row[Column.ATTENTION_PAIRS] for row in table],
            prefill_ranks=sum(row[Column.IS_EXTEND] for row in table),
            graph=graph,
            sync_wait=sync_wait,
            launched=time.monotonic(),
        )
        self._device.launch(self._steps, _work(batch, graph=graph))
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
        elif step.batch.mode == "decode":
            if self._decoded and result.generated:
                self._gaps.append((now - self._decoded, result.generated))
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


def _row(batch: Batch | None) -> list[int]:
    row = [0] * len(Column)
    extend = batch is not None and batch.mode == "extend"
    row[Column.DECODE_GRAPH] = int(not extend)
    row[Column.IS_EXTEND] = int(extend)
    row[Column.FORWARD_MODE] = _IDLE if batch is None else _EXTEND if extend else _DECODE
    if batch is not None:
        row[Column.NUM_TOKENS] = batch.tokens
        row[Column.NUM_TOKENS_FOR_LOGPROB] = len(batch.requests)
        row[Column.MAX_PREFIX_LEN] = batch.max_prefix
        row[Column.ATTENTION_PAIRS] = batch.pairs
    return row


def _work(batch: Batch | None, *, graph: bool) -> Work:
    if batch is None:
        return Work(graph=graph)
    if batch.mode == "extend":
        return Work(prefill_tokens=batch.tokens, prefill_pairs=batch.pairs, graph=graph)
    return Work(decode_tokens=batch.tokens, decode_pairs=batch.pairs, graph=graph)


def _burn(seconds: float) -> None:
    """Uses that much CPU of this thread; on a crowded machine that takes longer than `seconds` of wall time."""
    if seconds > 0:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
