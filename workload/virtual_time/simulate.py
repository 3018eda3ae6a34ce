"""A cluster with a schedule of faults, for so many seconds of its own time."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import msgspec

from workload import labels
from workload.config import ClusterConfig
from workload.crowd import Crowd
from workload.schedule import Scheduled, check, find, moments
from workload.virtual_time.columns import Column
from workload.virtual_time.control import VirtualControl
from workload.virtual_time.engine import Engine
from workload.virtual_time.frontend import Frontend, VirtualLoop
from workload.virtual_time.hosts import Array
from workload.virtual_time.ledger import Ledger
from workload.virtual_time.recording import START
from workload.virtual_time.snapshots import Snapshot

LOADS_EVERY = 1.0  # seconds between two scrapes, as the collector's own
METRICS_EVERY = 5.0
CARDS_EVERY = 5.0

_COLLECT_EVERY = 100_000  # objects more than were freed: some 10 MB

_SAY_EVERY = 60.0  # virtual seconds between two reports of progress


class Sink(Protocol):
    """Where the scrapes go, such as `Recording` and `Table`."""

    def open(self, config: ClusterConfig, columns: list[Column]) -> None: ...
    def loads(self, at: float, snapshots: list[Snapshot]) -> None: ...
    def metrics(self, at: float, values: Array) -> None: ...


def simulate(
    config: ClusterConfig,
    schedule: Sequence[Scheduled],
    duration: float,
    sink: Sink,
    *,
    loads_every: float = LOADS_EVERY,
    metrics_every: float = METRICS_EVERY,
    cards: Callable[[float, str], None] | None = None,
    cards_every: float = CARDS_EVERY,
    seed: int | None = None,
    progress: Callable[[float], None] = lambda _: None,
    prepare: Callable[[VirtualControl], None] = lambda _: None,
) -> None:
    """Simulates `duration` seconds and gives `sink` every scrape before their end. The same arguments make the same scrapes.

    An interval may be infinite: no such page is made. `cards` is given pages of the cards' exporter. All pages come in the order of time,
    of one moment `loads`, `metrics` and `cards`. `seed` None takes the configuration's. `progress` hears the time that has come.
    `prepare` may use the handles of a control before the first step. The faults' labels go to `config.labels`, in seconds from
    `recording.START`. Raises ValueError for a configuration or a fault that virtual time cannot play.
    """
    if seed is not None:
        config = msgspec.structs.replace(config, seed=seed)
    _check(config)
    check(schedule, config)
    loop = VirtualLoop()
    ledger = Ledger(config, sink.loads, sink.metrics, loads_every=loads_every, metrics_every=metrics_every, duration=duration)
    sink.open(config, ledger.columns)
    engine = Engine(config, ledger.add)
    frontend = Frontend(config, engine, loop)
    control = VirtualControl(config, engine, frontend, loop)
    prepare(control)
    with _few_collections(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        crowd = Crowd(config, frontend)
        show = None if cards is None else _show(frontend, ledger, cards, cards_every, duration)
        runner.run(_play(schedule, duration, control, crowd, lambda: loop.play(engine, frontend), progress, show))
    engine.close(duration)
    ledger.stand_still(duration)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Lets the cyclic garbage collector look rarely: nothing here makes cycles by the step, and looking took 8 % of a simulation."""
    usual = gc.get_threshold()
    gc.set_threshold(_COLLECT_EVERY, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


async def _play(
    schedule: Sequence[Scheduled],
    duration: float,
    control: VirtualControl,
    crowd: Crowd,
    begin: Callable[[], None],
    progress: Callable[[float], None],
    show: Coroutine[None, None, None] | None,
) -> None:
    now = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as tasks:
        crowd.start(tasks)
        if show is not None:
            tasks.create_task(show)
        playing = tasks.create_task(_inject(control, schedule, duration))
        begin()
        while (left := duration - now()) > 0:
            await asyncio.sleep(min(_SAY_EVERY, left))
            progress(min(now(), duration))
        await playing
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def _show(frontend: Frontend, ledger: Ledger, cards: Callable[[float, str], None], every: float, duration: float) -> None:
    """The cards' pages, made in their time, and given in turn with the others."""
    now = asyncio.get_running_loop().time
    for turn in itertools.count():
        if (at := turn * every) >= duration:
            return
        await asyncio.sleep(at - now())
        ledger.show(at, partial(cards, at, frontend.cards_page()))


async def _inject(control: VirtualControl, schedule: Sequence[Scheduled], duration: float) -> None:
    """Begins, raises and ends the faults in their time, and notes the truth about each."""
    now = asyncio.get_running_loop().time
    acting: dict[tuple[str, int | None], tuple[Scheduled, float, Callable[[], None]]] = {}
    for moment in moments(schedule):
        if moment.at >= duration:
            break
        await asyncio.sleep(moment.at - now())
        fault = find(moment.what.fault)
        key = fault.id, None if fault.whole_group else moment.what.rank
        if moment.does == "end":
            planned, severity, end = acting.pop(key)
            end()
            _label(control.config, planned, severity, planned.onset + planned.duration)
        else:
            severity = fault.severity if moment.severity is None else moment.severity
            acting[key] = moment.what, severity, fault.start(control, moment.what.rank or 0, severity)
    for planned, severity, _ in acting.values():
        _label(control.config, planned, severity, duration)


def _label(config: ClusterConfig, planned: Scheduled, severity: float, over: float) -> None:
    if config.labels is None:
        return
    fault = find(planned.fault)
    rank = None if fault.whole_group else planned.rank
    ranks = () if rank is None else fault.ranks(rank, config.ranks)
    labels.append(config.labels, labels.Label(planned.fault, rank, severity, START + planned.onset, START + over, ranks))


def _check(config: ClusterConfig) -> None:
    """Raises ValueError for what the engine of virtual time does not play."""
    engine = config.engine
    cannot = [
        what
        for what, there in (
            (f"device {config.device!r}", config.device != "virtual"),
            ("a vLLM engine", config.vllm is not None),
            ("mixed prefill", engine.mixed),
            ("a graph for prefill", engine.prefill_graph_tokens > 0),
        )
        if there
    ]
    if cannot:
        raise ValueError(f"virtual time does not play {' or '.join(cannot)}; run a cluster in real time for it")
