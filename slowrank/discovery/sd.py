"""Prometheus' lists of targets (file_sd, http_sd): text in, targets out. Pure.

A list is taken whole or not at all: one bad entry means that whatever wrote it is broken, and the list before is the better one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from collector.errors import ConfigError
from slowrank.discovery.spec import Found, Reach, base_url, sorted_labels

MAX_TARGETS = 2_000
"""Of one list: far more than one process can read at a page a second (docs/sidecar.md), so that a runaway list does not eat the memory."""

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def parse(text: str, where: str, labels: Mapping[str, str], reach: Reach, *, is_yaml: bool = False) -> list[Found]:
    """The targets of a list. `labels` are for all of them, the list's own win. ConfigError says which entry is wrong."""
    try:
        groups = yaml.safe_load(text) if is_yaml else json.loads(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is no {'YAML' if is_yaml else 'JSON'} ({str(error).splitlines()[0][:120]})") from None
    if groups is None:
        groups = []
    if not isinstance(groups, list):
        raise ConfigError(f'{where}: holds a {type(groups).__name__}, not a list of {{"targets": [...], "labels": {{...}}}}')
    found: list[Found] = []
    for number, group in enumerate(groups):
        found += _group(group, f"{where}: entry {number + 1}", labels, reach, where)
        if len(found) > MAX_TARGETS:
            raise ConfigError(f"{where}: has more than {MAX_TARGETS} targets; split it over several slowranks")
    return found


def _group(group: Any, entry: str, labels: Mapping[str, str], reach: Reach, where: str) -> list[Found]:
    if not isinstance(group, dict) or not isinstance(group.get("targets"), list):
        raise ConfigError(f'{entry}: has no "targets" list')
    own = group.get("labels") or {}
    if not isinstance(own, dict) or not all(isinstance(k, str) and isinstance(v, str) and _LABEL.fullmatch(k) for k, v in own.items()):
        raise ConfigError(f"{entry}: labels must be names and texts; write numbers in quotes")
    scheme = own.get("__scheme__", "http")
    out = []
    for target in group["targets"]:
        if not isinstance(target, str):
            raise ConfigError(f"{entry}: the target {target!r:.80} is no text")
        try:
            out.append(Found(base_url(target if "://" in target else f"{scheme}://{target}"), sorted_labels(labels, own), reach, where))
        except ConfigError as error:
            raise ConfigError(f"{entry}: {error}") from None
    return out
