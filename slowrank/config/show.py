"""The effective configuration for a person: each value and where it comes from. Pure; no secret is in a Config, and addresses that may
hold one are cut to their host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator

from diagnose.report.plain import safe
from slowrank.config.load import Loaded


def show(loaded: Loaded) -> list[str]:
    """`key = value  # origin`, one line each, in the order of the model."""
    rows = [(f"{name} = {value}", loaded.origins.get(name, "default")) for name, value in _values(loaded.config)]
    width = max((len(left) for left, _ in rows), default=0)
    return [f"{left.ljust(min(width, 60))}  # {origin}" for left, origin in rows]


def _values(model: BaseModel, path: str = "") -> Iterator[tuple[str, str]]:
    for key in type(model).model_fields:
        value = getattr(model, key)
        name = f"{path}.{key}".lstrip(".")
        if isinstance(value, BaseModel):
            yield from _values(value, name)
        elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
            for number, item in enumerate(value):
                yield from _values(item, f"{name}[{number}]")
        elif value is not None:
            yield name, _written(key, value, timed=any(isinstance(m, BeforeValidator) for m in type(model).model_fields[key].metadata))


def _written(key: str, value: Any, *, timed: bool) -> str:
    if timed:
        return f'"{value:g}s"'
    if key == "url":
        return json.dumps(host_only(str(value)))
    if isinstance(value, tuple):
        return json.dumps([safe(str(item)) for item in value])
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {json.dumps(safe(v))}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, str | Path):
        return json.dumps(safe(str(value)), ensure_ascii=False)
    return json.dumps(value)


def host_only(url: str) -> str:
    """An address without what may be a key: the path and what follows it."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "(no address)"
    return f"{parts.scheme}://{host}" + ("/..." if parts.path.strip("/") or parts.query else "")
