"""A scenario: a cluster, its traffic, and what goes wrong in it when, as a TOML file.

    about = "Long contexts on one rank."
    ranks = 8
    router = "total_requests"
    traffic = "chat"                # a preset, a recording beside this file, or a table of `workload.traffic.model.Traffic`
    seed = 1
    duration = 60                   # seconds

    [engine]                        # also [limits], [experts], [budget]: as in `workload.config`
    publish_every = 15

    [vllm]                          # a vLLM cluster, which has no router, [engine] and [budget] of SGLang's
    moe = true

    [[fault]]                       # harmless events are written here too
    name = "context_length_skew"
    rank = 3
    onset = 20

The file is not served, nor told to any process of the cluster: what it says about faults stays with the caller.
"""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from workload.config import ClusterConfig, Method
from workload.schedule import Scheduled, check
from workload.traffic import replay
from workload.traffic.model import Traffic
from workload.traffic.presets import preset
from workload.vllm.dense import served

_BUNDLED = resources.files("workload") / "scenarios"
_OWN = ("about", "router", "traffic", "duration", "fault")
_ELSEWHERE = ("method", "traffic", "replay", "port", "labels", "model_name")  # of the configuration: under another key, or not a scenario's
_SGLANGS = ("router", "engine", "budget")  # what a vLLM cluster would not look at
_DURATION = 60.0  # seconds
_FAULT_KEYS = ("name", *(f.name for f in fields(Scheduled) if f.name != "fault"))


class ScenarioError(ValueError):
    """A file that is no scenario; says file, key, what was found there, and the nearest valid key."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`duration` in seconds."""

    name: str
    about: str
    config: ClusterConfig
    schedule: tuple[Scheduled, ...]
    duration: float


def bundled() -> list[str]:
    """The names of the scenarios that come with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _BUNDLED.iterdir() if entry.name.endswith(".toml"))


def load(text: str) -> Scenario:
    """The scenario in the file `text`, or the bundled one of that name. Raises ScenarioError."""
    if text.endswith(".toml"):
        path = Path(text)
        try:
            return parse(path.read_text(encoding="utf-8"), text, path.stem, path.parent)
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"{text}: cannot be read: {error}") from error
    names = bundled()
    if text not in names:
        raise ScenarioError(f"there is no scenario {text!r}{_near(text, names)} Give a .toml file or one of `slowrank workload scenarios`")
    return parse((_BUNDLED / f"{text}.toml").read_text(encoding="utf-8"), f"{text}.toml", text, Path())


def parse(text: str, file: str, name: str, beside: Path) -> Scenario:
    """The scenario `name`; `file` is what errors call it, `beside` is where recordings are looked for. Raises ScenarioError."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file}: not TOML: {error}") from None
    members = {f.name: f.type for f in msgspec.structs.fields(ClusterConfig) if f.name not in _ELSEWHERE}
    _only(found, (*_OWN, *members), file, "")
    for key, kind in members.items():
        _inside(kind, found.get(key), file, key)
    _inside(Method, found.get("router"), file, "router")
    config = _config({key: found[key] for key in members if key in found}, found, file, beside)
    duration = _number(found.get("duration", _DURATION), file, "duration")
    if not 0 < duration < float("inf"):
        raise ScenarioError(f"{file}, duration: {duration:g}; give seconds, more than 0")
    schedule = tuple(_schedule(found.get("fault", []), file, duration))
    for i in range(len(schedule)):
        try:
            check(schedule[: i + 1], config)
        except ValueError as error:
            raise ScenarioError(f"{file}, fault {i + 1}: {error}") from None
    about = found.get("about", "")
    if not isinstance(about, str):
        raise ScenarioError(f"{file}, about: {about!r} is not a text")
    return Scenario(name, about, config, schedule, duration)


def _config(given: dict[str, Any], found: Mapping[str, Any], file: str, beside: Path) -> ClusterConfig:
    if "router" in found:
        given["method"] = found["router"]
    try:
        config = msgspec.convert(given, ClusterConfig)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{file}: {_told(str(error))}") from None
    if config.vllm is not None:
        if wrong := [key for key in _SGLANGS if key in found]:
            raise ScenarioError(f"{file}, {wrong[0]}: SGLang's alone; a scenario with [vllm] has none, take out one of them")
        config = served(config, config.vllm)
    if "traffic" not in found:
        return config
    traffic = found["traffic"]
    try:
        if isinstance(traffic, str) and traffic.endswith(".csv"):
            path = beside / traffic
            replay.load(path, config.limits.kv_tokens)
            return msgspec.structs.replace(config, traffic=None, replay=str(path.absolute()))
        if isinstance(traffic, str):
            return msgspec.structs.replace(config, traffic=None if traffic == "none" else preset(traffic))
        _inside(Traffic, traffic, file, "traffic")
        return msgspec.structs.replace(config, traffic=msgspec.convert(traffic, Traffic))
    except ScenarioError:
        raise
    except ValueError as error:  # of a preset, of a recording, or msgspec's
        raise ScenarioError(f"{file}, traffic: {_told(str(error))}") from None


def _schedule(faults: Any, file: str, duration: float) -> Iterator[Scheduled]:
    if not isinstance(faults, list) or not all(isinstance(fault, dict) for fault in faults):
        raise ScenarioError(f"{file}, fault: write each as a table under [[fault]]")
    for i, fault in enumerate(faults, 1):
        where = f"fault {i}"
        _only(fault, _FAULT_KEYS, file, where)
        if not isinstance(name := fault.get("name"), str):
            raise ScenarioError(f"{file}, {where}: name is missing; `slowrank workload faults` lists them")
        rank = fault.get("rank")
        if rank is not None and type(rank) is not int:
            raise ScenarioError(f"{file}, {where}, rank: {rank!r} is not a whole number")
        numbers = {key: _number(value, file, f"{where}, {key}") for key, value in fault.items() if key not in ("name", "rank")}
        try:
            planned = Scheduled(name, rank, **numbers)
        except ValueError as error:
            raise ScenarioError(f"{file}, {where}: {error}") from None
        if planned.onset + planned.ramp >= duration:
            raise ScenarioError(
                f"{file}, {where}: is not there before {planned.onset + planned.ramp:g} s, and the run lasts {duration:g} s"
            )
        yield planned


def _inside(kind: Any, value: Any, file: str, where: str) -> None:
    """Checks a choice, or the keys of a table and of the tables in it, against the type that they will become."""
    members = typing.get_args(kind) if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union else (kind,)
    choices = [choice for member in members if typing.get_origin(member) is typing.Literal for choice in typing.get_args(member)]
    if isinstance(value, str) and choices and value not in choices:
        raise ScenarioError(f"{file}, {where}: {value!r} is not one of {', '.join(choices)}{_near(value, choices)}")
    if not isinstance(value, dict):
        return
    structs = [m for m in members if isinstance(m, type) and issubclass(m, msgspec.Struct)]
    tagged = {str(m.__struct_config__.tag): m for m in structs if m.__struct_config__.tag is not None}
    if tagged:
        structs = [tagged[value["type"]]] if value.get("type") in tagged else []  # else msgspec says which types there are
    for struct in structs:
        own = {f.name: f.type for f in msgspec.structs.fields(struct)}
        _only(value, [*own, "type"] if tagged else own, file, where)
        for key, inner in own.items():
            _inside(inner, value.get(key), file, f"{where}.{key}")


def _only(found: Mapping[str, Any], names: Iterable[str], file: str, where: str) -> None:
    names = list(names)
    for key in found:
        if key not in names:
            hint = _near(key, names) or f"; there are {', '.join(names)}"
            raise ScenarioError(f"{file}, {where + ': ' if where else ''}unknown key {key!r}{hint}")


def _number(value: Any, file: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ScenarioError(f"{file}, {where}: {value!r} is not a number")
    return float(value)


def _near(key: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _told(error: str) -> str:
    """msgspec's words with the key as the file has it."""
    return error.replace("`$.method`", "`router`").replace("`$.", "`").replace("`$`", "the table")
