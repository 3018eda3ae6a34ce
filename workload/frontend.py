"""The front end's process: where requests come from, which rank they go to, and the HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from workload.config import VERSION, ClusterConfig
from workload.crowd import Crowd
from workload.device.names import accelerator
from workload.face import dcgm
from workload.face.app import create_app
from workload.face.generation import add_generate
from workload.face.loads import SnapshotReader
from workload.face.metrics import TokenizerMetrics
from workload.flights import Flights
from workload.steering import steering
from workload.traffic import Shape, shape
from workload.wire import Abort, AsyncChannel, CardOrder, DeskOrder, PeerLostError, Pin, Progress, Ready, Spec, Submit, Unpin

HEALTH_SECONDS = 20.0  # SGLang's /health gives up after so long without any output from any rank


@dataclass(slots=True)
class _Flight:
    """A request on its way, seconds in monotonic time."""

    rank: int
    shape: Shape
    sent: float
    done: Callable[[], None]
    ordinary: bool  # not pinned to its rank by order
    first: float | None = None


class Dispatcher(Flights[_Flight]):
    """Sends requests to ranks and hears of their progress."""

    def __init__(self, config: ClusterConfig, loads: SnapshotReader, metrics: TokenizerMetrics) -> None:
        super().__init__(config)
        self._steering = steering(config, loads.read_all)
        self._metrics = metrics
        self._prefills = config.engine.role == "prefill"  # then every answer ends with its first token
        self._channels: list[AsyncChannel] = []
        self._output = time.monotonic()  # of any rank

    def connect(self, channels: list[AsyncChannel]) -> None:
        self._channels = channels

    def _choose(self, rid: int, request: Shape, pinned: int | None) -> int:  # noqa: ARG002  # the controller does not ask who
        now = time.monotonic()
        if not self._flights:
            self._output = now  # nobody owed any output until now
        rank = self._steering.choose(now, request.prompt, pinned)
        return rank if pinned is not None else self._desk.place(rank)

    def _take_off(self, rid: int, rank: int, request: Shape, done: Callable[[], None], *, ordinary: bool) -> _Flight:  # noqa: ARG002
        return _Flight(rank, request, time.monotonic(), done, ordinary)

    def _post(self, rank: int, message: Submit | Abort) -> None:
        self._channels[rank].send(message)

    def _aborted(self, flight: _Flight) -> None:
        self._steering.ended(flight.rank)

    def heard(self, progress: Progress) -> None:
        """What a rank tells; looked at once the desk lets it through."""
        if self._desk.held:
            asyncio.get_running_loop().call_later(self._desk.held, self._heard, progress)
        else:
            self._heard(progress)

    def _heard(self, progress: Progress) -> None:
        now = self._output = time.monotonic()
        for rid in progress.first:
            if (flight := self._flights.get(rid)) is not None and flight.first is None:
                flight.first = now
                self._metrics.first_token(now - flight.sent)
        for seconds, tokens in progress.gaps:
            self._metrics.inter_token(seconds * tokens, tokens)  # each request's token came after `seconds`: one value, `tokens` times
        for rid in progress.failed:
            if (flight := self._flights.pop(rid, None)) is not None:
                self._steering.ended(flight.rank)
                flight.done()
        for rid in progress.finished:
            if (flight := self._flights.pop(rid, None)) is not None:
                if flight.first is None:  # its only output
                    flight.first = now
                    self._metrics.first_token(now - flight.sent)
                self._metrics.finished(
                    prompt_tokens=flight.shape.prompt,
                    cached_tokens=flight.shape.cached,
                    generation_tokens=1 if self._prefills else flight.shape.output,
                    ttft=flight.first - flight.sent,
                    e2e=now - flight.sent,
                )
                self._steering.ended(flight.rank)
                flight.done()

    def healthy(self) -> bool:
        return not self._flights or time.monotonic() - self._output < HEALTH_SECONDS


class Pinned:
    """Requests that are kept alive on one rank, by order."""

    def __init__(self, dispatcher: Flights[Any], seed: int) -> None:
        self._dispatcher = dispatcher
        self._rng = random.Random(seed + 2)
        self._live: dict[str, set[int]] = {}

    def order(self, order: Pin | Unpin) -> None:
        if isinstance(order, Unpin):
            self._dispatcher.abort(sorted(self._live.pop(order.name, set())))
            return
        self._live[order.name] = set()
        for _ in range(order.concurrency):
            self._renew(order)

    def _renew(self, order: Pin, ended: int | None = None) -> None:
        live = self._live.get(order.name)
        if live is None:
            return
        live.discard(-1 if ended is None else ended)
        request = shape(order.prompt, order.fresh, order.output, self._rng)
        rid = self._dispatcher.send(request, lambda: self._ended(order, rid), pinned=order.rank)
        live.add(rid)

    def _ended(self, order: Pin, rid: int) -> None:
        if order.renew:
            self._renew(order, rid)
        elif (live := self._live.get(order.name)) is not None:
            live.discard(rid)
            if not live:
                del self._live[order.name]


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answers.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: the cluster's owner ends this process."""
        yield


def run(spec: Spec, control: socket.socket, ranks: Mapping[int, socket.socket]) -> None:
    """Serves until the cluster's owner or a rank is gone. If it is the owner, removes the working directory, as nobody else would."""
    try:
        asyncio.run(_engine(spec, control, ranks))
    except BaseExceptionGroup as group:
        _, others = group.split(PeerLostError)
        if others is not None:
            raise others from None  # at once: this process is to blame, and must not end after those that lost it
        if _orphaned(spec.parent):
            shutil.rmtree(Path(spec.workdir), ignore_errors=True)
        raise PeerLostError from None


def _engine(spec: Spec, control: socket.socket, ranks: Mapping[int, socket.socket]) -> Coroutine[None, None, None]:
    """The front end that wears the configured engine's face."""
    if spec.config.vllm is None:
        return _serve(spec.config, spec.loads_path, control, ranks)
    from workload.vllm import frontend  # which itself needs this module

    return frontend.serve(spec.config, spec.config.vllm, control, ranks)


def _orphaned(parent: int) -> bool:
    """Whether the owner is gone. A rank's end, which is the owner's doing, may have been heard of a moment before it."""
    deadline = time.monotonic() + 1.0
    while (alive := os.getppid() == parent) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive


async def _serve(config: ClusterConfig, loads_path: str, control: socket.socket, ranks: Mapping[int, socket.socket]) -> None:
    metrics = TokenizerMetrics(model_name=config.model_name, engine_type=config.engine.engine_type)
    dispatcher = Dispatcher(config, SnapshotReader(loads_path, config.ranks), metrics)
    app = create_app(
        loads_path=loads_path,
        ranks=config.ranks,
        version=VERSION,
        accelerator=accelerator(config),
        server_info=server_info(config),
        healthy=dispatcher.healthy,
    )
    add_generate(app, dispatcher, config.ranks, config.limits.kv_tokens)
    listener = socket.create_server(("127.0.0.1", config.port))
    server = Server(uvicorn.Config(app, log_level="warning", access_log=False))
    cards = dcgm.mount(app, config, SnapshotReader(loads_path, config.ranks))
    pinned = Pinned(dispatcher, config.seed)

    def ordered(order: Pin | Unpin | CardOrder | DeskOrder) -> None:
        if isinstance(order, Pin | Unpin):
            pinned.order(order)
        elif isinstance(order, DeskOrder):
            dispatcher.order(order)
        else:
            cards.order(order, time.monotonic())

    owner = await AsyncChannel.open(control, Pin | Unpin | CardOrder | DeskOrder)
    channels = [await AsyncChannel.open(ranks[r], Progress) for r in range(config.ranks)]
    dispatcher.connect(channels)
    async with asyncio.TaskGroup() as tasks:  # the first that fails ends all
        tasks.create_task(server.serve(sockets=[listener]))
        tasks.create_task(owner.pump(ordered))
        for channel in channels:
            tasks.create_task(channel.pump(dispatcher.heard))
        await server.answers.wait()
        Crowd(config, dispatcher).start(tasks)
        owner.send(Ready(listener.getsockname()[1]))


def server_info(config: ClusterConfig) -> dict[str, object]:
    """What `/server_info` says: the resolved arguments of `--tp N --attn-dp-size N --ep N`."""
    return {
        "served_model_name": config.model_name,
        "model_path": config.model_name,
        "tp_size": config.ranks,
        "dp_size": 1,
        "attn_dp_size": config.ranks,
        "ep_size": config.ranks,
        "pp_size": 1,
        "enable_dp_attention": True,
        "load_balance_method": config.method,
        "disaggregation_mode": config.engine.role,
        "disable_overlap_schedule": False,
        "enable_metrics": True,
        "chunked_prefill_size": config.limits.chunk_tokens,
        "max_running_requests": config.limits.max_running_requests,
        "max_total_num_tokens": config.limits.kv_tokens,
        "decode_log_interval": 40,
        "load_snapshot_publish_interval": config.engine.publish_every,
        "device": accelerator(config),
        "kv_events": None,
        "internal_states": [],
        "frontend": "python",
    }
