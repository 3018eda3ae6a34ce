"""The front end's process of a vLLM cluster: API servers, and the coordinator between them and the engine cores."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from functools import partial

import uvicorn

from workload.config import ClusterConfig
from workload.crowd import Crowd
from workload.face.generation import add_completions
from workload.face.vllm import VllmMetrics
from workload.face.vllm_app import create_app
from workload.frontend import Pinned, Server
from workload.vllm.dispatcher import VllmDispatcher
from workload.vllm.settings import MAX_MODEL_LEN, VERSION, VllmFlags
from workload.vllm.wire import Output, Woken
from workload.wire import AsyncChannel, CardOrder, DeskOrder, Pin, Ready, Unpin


async def serve(config: ClusterConfig, flags: VllmFlags, control: socket.socket, ranks: Mapping[int, socket.socket]) -> None:
    """Serves until the cluster's owner or a rank is gone."""
    several = flags.api_servers > 1
    if not several:
        os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)  # every process of a cluster is given one
    metrics = VllmMetrics(
        model_name=config.model_name,
        engines=config.ranks,
        kv_tokens=config.limits.kv_tokens,
        max_model_len=MAX_MODEL_LEN,
        multiprocess=several,
    )
    dispatcher = VllmDispatcher(config, flags, metrics)
    listener = socket.create_server(("127.0.0.1", config.port))
    app = create_app(version=VERSION, page=metrics.page)
    add_completions(app, dispatcher, config.ranks, config.limits.kv_tokens)
    server = Server(uvicorn.Config(app, log_level="warning", access_log=False))
    pinned = Pinned(dispatcher, config.seed)

    def ordered(order: Pin | Unpin | CardOrder | DeskOrder) -> None:
        if isinstance(order, Pin | Unpin):
            pinned.order(order)
        elif isinstance(order, DeskOrder):
            dispatcher.order(order)
        # what is done to a card shows on no page of this front end

    owner = await AsyncChannel.open(control, Pin | Unpin | CardOrder | DeskOrder)
    channels = [await AsyncChannel.open(ranks[r], Output | Woken) for r in range(config.ranks)]
    dispatcher.connect(channels)
    async with asyncio.TaskGroup() as tasks:  # the first that fails ends all
        tasks.create_task(server.serve(sockets=[listener]))
        tasks.create_task(owner.pump(ordered))
        for rank, channel in enumerate(channels):
            tasks.create_task(channel.pump(partial(dispatcher.heard, rank)))
        await server.answers.wait()
        Crowd(config, dispatcher).start(tasks)
        owner.send(Ready(listener.getsockname()[1]))
