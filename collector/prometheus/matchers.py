"""PromQL label matchers: what a person types after --match, and selectors built of them. Pure; nothing reaches PromQL unescaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collector.errors import ConfigError

_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_MEANT = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label; `value` is plain text, `operator` one of = != =~ !~."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quoted(self.value)}"


def quoted(text: str) -> str:
    """A PromQL string that means `text`, whatever it holds."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """The label is one of plain `values`. A list without any other regular expression is an index lookup for Prometheus."""
    return Matcher(label, "=~", "|".join(re.escape(value) for value in values))


def none_of(label: str, values: Iterable[str]) -> Matcher:
    """The label is none of plain `values`."""
    return Matcher(label, "!~", one_of(label, values).value)


def selector(matchers: Sequence[Matcher]) -> str:
    """`{a="b",c=~"d|e"}`"""
    return "{" + ",".join(map(str, matchers)) + "}"


def parse(text: str) -> tuple[Matcher, ...]:
    """What `--match` was given: `label="value"`, several joined by commas, with or without braces. ConfigError for anything else."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    found: list[Matcher] = []
    at = 0
    while at < len(inner):
        match = _MATCHER.match(inner, at)
        if match is None:
            then = """write it as 'namespace="prod",pod=~"sglang-.*"'"""
            raise ConfigError(f"--match {text!r}: no label matcher at {inner[at : at + 20]!r}; {then}")
        label, operator, value = match.groups()
        if label == "__name__":
            raise ConfigError("--match: __name__ is chosen by slowrank; match the labels of targets, such as job, namespace or pod")
        found.append(Matcher(label, operator, _ESCAPE.sub(lambda m: _MEANT.get(m[1], m[1]), value)))
        at = match.end()
    if not found:
        raise ConfigError("--match is empty; leave it out to read every engine that the server holds")
    return tuple(found)
