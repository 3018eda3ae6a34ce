"""A file and the environment become a Config. Unknown keys are refused with the nearest name; every error names file, key and value."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from collector.errors import ConfigError
from slowrank.config.model import Config

PREFIX = "SLOWRANK_"
MAX_FILE = 1 << 20
"""Bytes of a configuration file; a thousand engines are a tenth of it."""

SECTIONS = ("service", "scrape", "diagnosis")
"""Tables whose keys the environment can set: lists have no names there."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A Config and where its values come from: dotted key -> "file" or the variable's name; what is not listed is a default."""

    config: Config
    origins: Mapping[str, str]
    folder: Path  # that relative paths start from


def load(path: Path | None, environ: Mapping[str, str], targets: Sequence[str] = (), shard: str | None = None) -> Loaded:
    """The configuration: environment over file over defaults; `targets` of the command line are further engines, and its `shard` is over
    all others.

    Raises ConfigError that names the file or variable, the key, the value and the nearest valid key.
    """
    raw = {} if path is None else _read(path)
    where = "the configuration" if path is None else str(path)
    _refuse_unknown(raw, Config, where)
    origins = dict.fromkeys(_leaves(raw), "file")
    for name, (section, key) in variables(environ, where).items():
        table = raw.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{where}: {section} = {table!r} is no table; write [{section}]")
        table[key] = environ[name]
        origins[f"{section}.{key}"] = name
    if shard is not None:
        raw["service"] = {**raw.get("service", {}), "shard": shard}
        origins["service.shard"] = "command line"
    if targets:
        known = raw.setdefault("engines", [])
        start = len(known)
        known += [{"nodes": [node.strip() for node in target.split(",")]} for target in targets]
        origins |= {f"engines[{start + k}].nodes": "command line" for k in range(len(targets))}
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("; ".join(_explained(where, item, origins) for item in error.errors(include_url=False)[:5])) from None
    return Loaded(config, origins, Path.cwd() if path is None else path.absolute().parent)


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_FILE:
            raise ConfigError(f"{path}: is {path.stat().st_size:,} bytes; a configuration has at most {MAX_FILE:,}")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); name a configuration file with --config") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None


def variables(environ: Mapping[str, str], where: str = "the environment") -> dict[str, tuple[str, str]]:
    """The variables that set a key: name -> (table, key). ConfigError for one that looks like it and sets none."""
    known = {f"{PREFIX}{s}__{k}".upper(): (s, k) for s in SECTIONS for k in tables(Config)[s].model_fields}
    found = {}
    for name in environ:
        if name.startswith(PREFIX) and "__" in name:
            if name not in known:
                raise ConfigError(f"{name}: sets no key of {where}{_nearest(name, known)}")
            found[name] = known[name]
    return found


def _refuse_unknown(raw: Mapping[str, Any], model: type[BaseModel], where: str, path: str = "") -> None:
    inner_tables = tables(model)
    for key, value in raw.items():
        if key not in model.model_fields:
            place = f"[{path}]" if path else "the top level"
            raise ConfigError(f"{where}: there is no key {key!r} in {place}{_nearest(key, model.model_fields)}")
        if key in inner_tables:
            for number, inner in enumerate(value if isinstance(value, list) else [value]):
                below = f"{path}.{key}".lstrip(".") + (f"[{number}]" if isinstance(value, list) else "")
                if isinstance(inner, dict):
                    _refuse_unknown(inner, inner_tables[key], where, below)


def tables(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The keys of a table that are tables or lists of tables themselves, with what they hold."""
    found = {}
    for name, info in model.model_fields.items():
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found[name] = kind
    return found


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(sorted(known))}"


def _leaves(raw: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Dotted names of all values of the file."""
    for key, value in raw.items():
        name = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict) and key != "labels":
            yield from _leaves(value, name)
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for number, item in enumerate(value):
                yield from _leaves(item, f"{name}[{number}]")
        else:
            yield name


def _explained(where: str, item: Any, origins: Mapping[str, str]) -> str:
    name = ""
    for part in item["loc"]:
        name += f"[{part}]" if isinstance(part, int) else f".{part}"
    name = name.lstrip(".")
    origin = origins.get(name, "file")
    place = where if origin == "file" else origin
    seen = item["input"]
    value = "" if isinstance(seen, dict) or item["type"] in {"missing", "value_error"} else f" = {seen!r}"
    return f"{place}: {name}{value[:120]}: {item['msg'].removeprefix('Value error, ')}"
