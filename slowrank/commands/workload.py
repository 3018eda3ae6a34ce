"""`slowrank workload`: the generator that stands in for an engine, and the faults that it can really cause."""

from __future__ import annotations

import difflib
import signal
import threading
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.errors import ConfigError, SlowrankError
from diagnose.report.plain import wrap
from slowrank.commands.options import TIME, parse_time
from slowrank.terminal import say, width

if TYPE_CHECKING:
    from workload.config import ClusterConfig
    from workload.schedule import Scheduled

workload = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run an engine without a model, with faults on demand.")


class Device(StrEnum):
    """What a step's work is done by."""

    VIRTUAL = "virtual"
    CPU = "cpu"


@workload.command()
def faults() -> None:
    """List the faults: class, what each really does, on which devices."""
    from workload.faults import load

    known = load()
    names = max(map(len, known), default=0)
    for fault in sorted(known.values(), key=lambda f: (f.klass, f.id)):
        place = "the whole group" if fault.whole_group else "one rank"
        say(f"{fault.id:<{names}}  {fault.klass:<12}  {place}, on device {' or '.join(fault.devices)}")
        say("\n".join(wrap(" ".join(fault.about.split()), width(), "    ")))


@workload.command()
def run(
    ranks: Annotated[int, typer.Option(min=2, max=64, help="How many data-parallel ranks.")] = 8,
    device: Annotated[Device, typer.Option(help="virtual sleeps as long as a card would work; cpu computes.")] = Device.VIRTUAL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]", help="A fault and when: slow_rank:rank=3,onset=20,duration=30,severity=0.5; repeatable."
        ),
    ] = None,
    seconds: Annotated[float, typer.Option("--for", parser=parse_time, metavar=TIME, help="How long to run.", show_default="60s")] = 60.0,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Append what was really injected; no endpoint serves it.")] = None,
) -> None:
    """Serve an engine's pages and inject faults on a timetable.

    The first line on stdout is the URL to diagnose.
    """
    from workload.config import ClusterConfig
    from workload.nursery import ClusterError
    from workload.run import run as run_cluster

    config = ClusterConfig(ranks=ranks, device=device.value, port=port, labels=labels)
    timetable = _timetable(fault or [], config)
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        run_cluster(config, timetable, stop, say=say, duration=seconds)
    except ClusterError as error:
        raise SlowrankError(f"the workload failed: {error}") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _timetable(texts: Sequence[str], config: ClusterConfig) -> list[Scheduled]:
    """The faults, checked before anything starts: a slip found after 20 s of onset would cost the run."""
    from workload.faults import load
    from workload.schedule import parse

    known = load()
    found = []
    for text in texts:
        try:
            planned = parse(text)
        except ValueError as error:
            raise ConfigError(f"--fault {error}") from None
        if planned.fault not in known:
            near = difflib.get_close_matches(planned.fault, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`slowrank workload faults` lists them"
            raise ConfigError(f"--fault {text}: there is no fault {planned.fault!r}; {hint}")
        fault = known[planned.fault]
        if config.device not in fault.devices:
            raise ConfigError(f"--fault {text}: cannot be made on device {config.device}, only on {' or '.join(fault.devices)}")
        if not fault.whole_group and (planned.rank is None or not 0 <= planned.rank < config.ranks):
            raise ConfigError(f"--fault {text}: acts on one rank; add rank=0 to rank={config.ranks - 1}")
        found.append(planned)
    return found
