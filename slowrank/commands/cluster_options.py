"""What the options of `slowrank workload` make of a cluster's configuration, each refused before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from collector.errors import ConfigError

if TYPE_CHECKING:
    from workload.config import ClusterConfig
    from workload.schedule import Scheduled


class EngineKind(StrEnum):
    """Whose shape and pages the cluster has."""

    SGLANG = "sglang"
    VLLM = "vllm"


class Dispatch(StrEnum):
    """How tokens are sent to experts."""

    NORMAL = "normal"
    LOW_LATENCY = "low-latency"


def given(context: typer.Context) -> set[str]:
    """The parameters that stand on the command line, by their names in Python."""
    return {name for name in context.params if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"}


def with_cards(context: typer.Context, config: ClusterConfig, card: str | None, skew: float | None, dispatch: Dispatch) -> ClusterConfig:
    """The configuration on that card, with as much KV as fits there, and experts with that skew and dispatch."""
    import msgspec

    from workload.device.catalogue import find
    from workload.device.roofline import Roofline

    if config.device != "virtual" and (wrong := sorted(given(context) & {"card", "dispatch"})):
        raise ConfigError(f"--{wrong[0]}: device {config.device!r} computes on what is there; leave it out, or run --device virtual")
    experts = msgspec.structs.replace(config.experts, dispatch=dispatch.value.replace("-", "_"))
    if skew is not None:
        experts = msgspec.structs.replace(experts, skew=skew)
    limits = config.limits
    try:
        if card is not None:
            limits = msgspec.structs.replace(limits, kv_tokens=min(limits.kv_tokens, Roofline.on(find(card)).kv_tokens))
        return msgspec.structs.replace(config, card=card or config.card, experts=experts, limits=limits)
    except ValueError as error:
        raise ConfigError(f"--card: {error}") from None


def with_engine(context: typer.Context, config: ClusterConfig, engine: EngineKind, *, dense: bool, api_servers: int) -> ClusterConfig:
    """The configuration as a cluster of that engine; options of the other one are refused."""
    from workload.config import VllmFlags
    from workload.vllm.dense import served

    there = given(context)
    if engine is EngineKind.SGLANG:
        if wrong := sorted(there & {"dense", "api_servers"}):
            raise ConfigError(f"--{wrong[0].replace('_', '-')}: only a vLLM cluster has it; add --engine vllm")
        return config
    if "router" in there and config.method != "vllm_score":
        raise ConfigError(f"--router {config.method}: vLLM deals by its own score alone; leave it out, or run --engine sglang")
    if dense and (wrong := sorted(there & {"expert_skew", "dispatch"})):
        raise ConfigError(f"--{wrong[0].replace('_', '-')}: a dense model has no experts; leave out --dense")
    try:
        return served(config, VllmFlags(moe=not dense, api_servers=api_servers))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def with_traffic(config: ClusterConfig, text: str) -> ClusterConfig:
    """The configuration with the traffic that `text` names; a recording is checked before anything starts."""
    import msgspec

    from workload.traffic import replay
    from workload.traffic.presets import preset

    try:
        if not text.endswith(".csv"):
            return msgspec.structs.replace(config, traffic=preset(text))
        replay.load(Path(text), config.limits.kv_tokens)
    except ValueError as error:
        raise ConfigError(f"--traffic {error}") from None
    return msgspec.structs.replace(config, traffic=None, replay=str(Path(text).absolute()))


def timetable(texts: Sequence[str], config: ClusterConfig) -> list[Scheduled]:
    """The faults, checked before anything starts: a slip found after 20 s of onset would cost the run."""
    from workload.schedule import check, parse

    found: list[Scheduled] = []
    for text in texts:
        try:
            found.append(parse(text))
            check(found, config)
        except ValueError as error:
            raise ConfigError(f"--fault {text}: {error}") from None
    return found
