"""`slowrank workload`: the generator that stands in for an engine, and the faults that it can really cause."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collector.errors import ConfigError, SlowrankError
from diagnose.report.plain import wrap
from slowrank.commands.cluster_options import Dispatch, EngineKind, given, timetable, with_cards, with_engine, with_traffic
from slowrank.commands.options import TIME, parse_time
from slowrank.terminal import bar, say, width

if TYPE_CHECKING:
    from workload.config import ClusterConfig
    from workload.schedule import Scheduled

workload = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run an engine without a model, with faults on demand.")


_CARD = "The card that virtual ranks pretend to have: A100, B200, H100, H20, H20-3e, H200, MI300X. Its KV pool is what fits there."
_SKEW = "How unlike the experts' lasting popularity is (spread of its logarithm): 0.5 is level, at 2 the hottest of 8 has twice its share."
_DISPATCH = "How tokens reach experts: normal, time follows the hottest card; low-latency, decode steps have a fixed shape."


class Device(StrEnum):
    """What a step's work is done by."""

    VIRTUAL = "virtual"
    CPU = "cpu"
    CUDA = "cuda"


class RouterMethod(StrEnum):
    """How requests are dealt to ranks: SGLang's four methods, and vLLM's score."""

    ROUND_ROBIN = "round_robin"
    TOTAL_REQUESTS = "total_requests"
    TOTAL_TOKENS = "total_tokens"
    FOLLOW_BOOTSTRAP_ROOM = "follow_bootstrap_room"
    VLLM_SCORE = "vllm_score"


@workload.command()
def faults() -> None:
    """List the faults: class, what each really does, on which devices."""
    from workload.schedule import known as everything

    known = everything()
    names = max(map(len, known), default=0)
    for fault in sorted(known.values(), key=lambda f: (f.klass, f.id)):
        place = "the whole group" if fault.whole_group else "one rank"
        say(f"{fault.id:<{names}}  {fault.klass:<12}  {place}, on device {' or '.join(fault.devices)}")
        say("\n".join(wrap(" ".join(fault.about.split()), width(), "    ")))


@workload.command()
def scenarios() -> None:
    """List the scenarios that come with slowrank: one per fault, several at once, and healthy ones that look uneven."""
    from workload.scenario import bundled, load

    names = bundled()
    for name in names:
        say(f"{name:<{max(map(len, names))}}  {load(name).about}")


@workload.command()
def plot(
    scenario: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help="What to run: see `slowrank workload scenarios`.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Where the picture goes, as NAME.svg.")] = Path(),
    live: Annotated[
        bool, typer.Option("--live", help="On a real cluster, in its own time; without, in virtual time where it can.")
    ] = False,
) -> None:
    """Draw what a scenario does to step time, waits and attention pairs, as an SVG."""
    from workload.plot import draw
    from workload.scenario import load

    try:
        say(str(draw(load(scenario), out, in_real_time=live)))
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from None


@workload.command()
def run(
    context: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml", help="Ranks, device, router, traffic, faults and duration from a file or a bundled scenario."
        ),
    ] = None,
    engine: Annotated[EngineKind, typer.Option(help="Whose shape and pages the cluster has.")] = EngineKind.SGLANG,
    dense: Annotated[bool, typer.Option("--dense", help="vLLM: a dense model; every rank steps at its own pace.")] = False,
    api_servers: Annotated[int, typer.Option(min=1, max=64, help="vLLM: how many API servers share the port.")] = 1,
    ranks: Annotated[int, typer.Option(min=2, max=64, help="How many data-parallel ranks.")] = 8,
    device: Annotated[Device, typer.Option(help="virtual sleeps as long as a card would work; cpu and cuda compute.")] = Device.VIRTUAL,
    card: Annotated[str | None, typer.Option(metavar="CARD", help=_CARD, show_default="H20-3e")] = None,
    expert_skew: Annotated[float | None, typer.Option(min=0, max=5, help=_SKEW, show_default="0.5")] = None,
    dispatch: Annotated[Dispatch, typer.Option(help=_DISPATCH)] = Dispatch.NORMAL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KEY=VALUE,...]", help="A fault and when: slow_rank:rank=3,onset=20,duration=30,severity=0.5; repeatable."
        ),
    ] = None,
    router: Annotated[RouterMethod, typer.Option(help="How requests are dealt to the ranks.")] = RouterMethod.ROUND_ROBIN,
    traffic: Annotated[
        str,
        typer.Option(
            metavar="PRESET|FILE.csv",
            help="chat, agent, rag, long_context, bursty, diurnal, or recorded requests: time,input,output,prefix.",
        ),
    ] = "chat",
    seconds: Annotated[float, typer.Option("--for", parser=parse_time, metavar=TIME, help="How long to run.", show_default="60s")] = 60.0,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Append what was really injected; no endpoint serves it.")] = None,
) -> None:
    """Serve an engine's pages and inject faults on a timetable.

    The first line on stdout is the URL to diagnose.
    """
    from workload.config import ClusterConfig
    from workload.nursery import ClusterError
    from workload.run import run as run_cluster

    if scenario is not None:
        config, plan, seconds = _scenario(context, scenario, seconds, port, labels)
    else:
        config = ClusterConfig(ranks=ranks, device=device.value, method=router.value, port=port, labels=labels)
        config = with_traffic(with_cards(context, config, card, expert_skew, dispatch), traffic)
        config = with_engine(context, config, engine, dense=dense, api_servers=api_servers)
        plan = timetable(fault or [], config)
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        run_cluster(config, plan, stop, say=say, duration=seconds)
    except ClusterError as error:
        raise SlowrankError(f"the workload failed: {error}") from error
    finally:
        signal.signal(signal.SIGTERM, before)


def _scenario(
    context: typer.Context, text: str, seconds: float, port: int, labels: Path | None
) -> tuple[ClusterConfig, Sequence[Scheduled], float]:
    """What a scenario says; of the other options only those may be given that do not say it too."""
    import msgspec

    from workload.scenario import load

    there = given(context)
    if twice := sorted(there - {"scenario", "port", "labels", "seconds", "seed", "output"}):
        raise ConfigError(f"--{twice[0].replace('_', '-')} and --scenario: the scenario says it already; copy its file and change it there")
    try:
        found = load(text)
    except ValueError as error:
        raise ConfigError(f"--scenario {error}") from None
    config = msgspec.structs.replace(found.config, port=port, labels=labels)
    if "seed" in there:
        config = msgspec.structs.replace(config, seed=context.params["seed"])
    return config, found.schedule, seconds if "seconds" in there else found.duration


@workload.command()
def simulate(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Capture file to write; it must not be there yet.")],
    scenario: Annotated[str | None, typer.Option(metavar="NAME|FILE.toml", help="As for `run`.")] = None,
    ranks: Annotated[int, typer.Option(min=2, max=64, help="How many data-parallel ranks.")] = 8,
    fault: Annotated[list[str] | None, typer.Option(metavar="NAME[:KEY=VALUE,...]", help="As for `run`; repeatable.")] = None,
    router: Annotated[RouterMethod, typer.Option(help="How requests are dealt to the ranks.")] = RouterMethod.ROUND_ROBIN,
    traffic: Annotated[str, typer.Option(metavar="PRESET|FILE.csv", help="As for `run`.")] = "chat",
    card: Annotated[str | None, typer.Option(metavar="CARD", help=_CARD, show_default="H20-3e")] = None,
    expert_skew: Annotated[float | None, typer.Option(min=0, max=5, help=_SKEW, show_default="0.5")] = None,
    dispatch: Annotated[Dispatch, typer.Option(help=_DISPATCH)] = Dispatch.NORMAL,
    seconds: Annotated[
        float, typer.Option("--for", parser=parse_time, metavar=TIME, help="How much of the engine's time.", show_default="10m")
    ] = 600.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same file.")] = 0,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Append what was really injected, apart from the capture.")] = None,
    cards: Annotated[bool, typer.Option("--cards", help="Hold pages of the cards' dcgm-exporter too, one every 5 s.")] = False,
) -> None:
    """Write what an engine would show, with faults on a timetable, without waiting for it.

    The same engine in virtual time: an hour of 8 ranks takes some seconds. `slowrank diagnose FILE` reads the capture.
    """
    from workload.config import ClusterConfig
    from workload.virtual_time.recording import Recording
    from workload.virtual_time.simulate import simulate as simulate_cluster

    if scenario is not None:
        config, plan, seconds = _scenario(context, scenario, seconds, 0, labels)
    else:
        config = ClusterConfig(ranks=ranks, method=router.value, seed=seed, labels=labels)
        config = with_traffic(with_cards(context, config, card, expert_skew, dispatch), traffic)
        plan = timetable(fault or [], config)
    try:
        with Recording(output) as recording, bar("simulating", seconds) as progress:
            simulate_cluster(config, plan, seconds, recording, progress=progress.at, cards=recording.cards if cards else None)
    except FileExistsError:
        raise ConfigError(f"{output}: there already; name another file, or remove this one first") from None
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written ({error.strerror}); name a file in a folder that can") from None
    say(f"{output}: {recording.pages} pages of {config.ranks} ranks over {seconds:g} s of simulated time")
