"""Every key of the configuration as lines of Markdown, for docs/sidecar.md. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from slowrank.config.load import SECTIONS, tables
from slowrank.config.model import Config


def rows() -> Iterator[str]:
    """The lines of one table: key, default, meaning. Keys of lists are written with [[ ]] around the list's name."""
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    yield from _rows(Config, "")


def _rows(model: type[BaseModel], path: str) -> Iterator[str]:
    inner = tables(model)
    for key, info in model.model_fields.items():
        name = f"{path}.{key}".lstrip(".")
        if key not in inner:
            yield f"| `{_named(path, key)}` | {_default(info)} | {info.description} |"
        else:
            yield from _rows(inner[key], name)


def _named(path: str, key: str) -> str:
    return f"{path}.{key}" if path in SECTIONS else f"[[{path}]] {key}"


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "must be given"
    value = info.get_default(call_default_factory=True)
    if value is None or value in ("", (), {}):
        return "none"
    if any(isinstance(item, BeforeValidator) for item in info.metadata):
        return f'`"{value:g}s"`'
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`" if isinstance(value, int | float) else f'`"{value}"`'
