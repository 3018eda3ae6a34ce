"""The body of `/v1/loads`: snapshots as JSON objects or as Prometheus text, with SGLang 0.5.23's sections."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from workload.face.loads import LoadSnapshot

# field of the snapshot: (its name in `include`, its prefix in a Prometheus name)
SECTIONS = {
    "memory": ("memory", "memory"),
    "speculative": ("spec", "spec"),
    "lora": ("lora", "lora"),
    "disaggregation": ("disagg", "disagg"),
    "queues": ("queues", "queues"),
}
INCLUDES = frozenset({"core", "all", *(name for name, _ in SECTIONS.values())})


class UnknownSectionError(ValueError):
    """`include` names a section that does not exist."""


def parse_include(include: str | None) -> frozenset[str]:
    """The asked-for names of a comma-separated `include`; nothing asked for is everything."""
    return frozenset(name.strip() for name in include.split(",")) if include else frozenset({"all"})


def as_object(snapshot: LoadSnapshot, include: frozenset[str]) -> dict[str, object]:
    """One rank's JSON object. Core fields are always there, a section only if asked for and present.

    An unknown name is refused only when no `all` stands beside it: SGLang 0.5.23 looks at the names rank by rank, after
    `all`, so that a page without ranks accepts anything too.
    """
    if "all" not in include and not include <= INCLUDES:
        raise UnknownSectionError(", ".join(sorted(include - INCLUDES)))
    page: dict[str, object] = {}
    for name in snapshot.__struct_fields__:
        value = getattr(snapshot, name)
        if name not in SECTIONS:
            page[name] = value
        elif value is not None and ("all" in include or SECTIONS[name][0] in include):
            page[name] = msgspec.structs.asdict(value)
    return page


def as_prometheus(snapshots: Iterable[LoadSnapshot], include: frozenset[str]) -> str:
    """The same as Prometheus text: every number a gauge labelled `dp_rank`; what is not a number is left out."""
    families: dict[str, list[str]] = {}
    for snapshot in snapshots:
        page = as_object(snapshot, include)
        rank = page.pop("dp_rank")
        for key, value in page.items():
            fields = {f"{SECTIONS[key][1]}_{name}": x for name, x in value.items()} if isinstance(value, dict) else {key: value}
            for name, x in fields.items():
                if isinstance(x, int | float):
                    families.setdefault(f"sglang_{name}", []).append(f'sglang_{name}{{dp_rank="{rank}"}} {x}')
    lines = [line for name, samples in families.items() for line in (f"# TYPE {name} gauge", *samples)]
    return "\n".join(lines) + "\n"
