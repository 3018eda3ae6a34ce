"""What a capture does not tell: model names, secrets, paths and command lines are taken out of pages before they are written. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec

from collector.model import Page, Source

WORD = "redacted"

_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_PRIVATE = re.compile(r"model|path|command|env|url|dir|host|addr|endpoint", re.IGNORECASE)
_MODEL_KEYS = ("served_model_name", "model_path")
_LABEL = re.compile(rb'(?<=[{,])(\s*+(\w++)=)"(?:[^"\\]|\\.)*+"')
_CARD_LABELS = frozenset(b"gpu UUID pci_bus_id device modelName Hostname GPU_I_ID GPU_I_PROFILE err_code err_msg".split())
_MODEL_LABEL = re.compile(rb'(?<=[{,])(\s*+(?:model_)?+name=)"((?:[^"\\]|\\.)*+)"')

_LONG_ENOUGH = 6
"""Characters from which a secret's value is also searched for in other fields; shorter ones would hit innocent text."""


class Redactor:
    """Takes private things out of pages, the same way on every page of a capture.

    Covered: the model_name label of metrics pages (each name becomes model-1, model-2, ... so that series stay apart); in /server_info
    the value of every field whose name contains key, token, secret, passw, credential or auth, numbers too, and every copy of such a
    value in other fields; texts and blocks of fields whose name contains model, path, command, env, url, dir, host, addr or endpoint; the
    bodies of failed replies; on pages of dcgm-exporter every label but those that tell cards and hosts apart: pods, name spaces, serial
    numbers. Pages of this node's processes hold nothing private. API keys of ours are never in a page.
    Not covered: the host names and ports of the target and of its cards, the cards' UUIDs, other labels of the engine's pages (such as
    those of --extra-metric-labels), load figures.
    """

    def __init__(self) -> None:
        self._models: dict[str, str] = {}

    def page(self, page: Page) -> Page:
        """The page without what is private; a window made of it differs in the model's name only."""
        if page.error is not None or page.status != 200:
            return replace(page, body=b"")
        if page.source in {Source.SGLANG_METRICS, Source.VLLM_METRICS}:
            return replace(page, body=_MODEL_LABEL.sub(self._label, page.body))
        if page.source is Source.DCGM:
            return replace(page, body=_LABEL.sub(_card_label, page.body))
        if page.source is Source.SGLANG_SERVER_INFO:
            return self._server_info(page)
        return page

    def _label(self, match: re.Match[bytes]) -> bytes:
        return match[1] + b'"' + self._model(match[2].decode(errors="replace")).encode() + b'"'

    def _model(self, name: str) -> str:
        return self._models.setdefault(name, f"model-{len(self._models) + 1}")

    def _server_info(self, page: Page) -> Page:
        try:
            info = msgspec.json.decode(page.body)
            secrets = {value for value in _secrets(info) if len(value) >= _LONG_ENOUGH}
            return replace(page, body=msgspec.json.encode(self._clean(info, secrets)))
        except (msgspec.DecodeError, msgspec.EncodeError, ValueError, OverflowError, RecursionError):
            return replace(
                page, body=b"", error="a /server_info that is no JSON was left out of the capture, because it cannot be redacted"
            )

    def _clean(self, value: Any, secrets: set[str]) -> Any:
        if isinstance(value, dict):
            return {name: self._field(name, inner, secrets) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._clean(inner, secrets) for inner in value]
        if isinstance(value, str):
            for secret in secrets:
                value = value.replace(secret, WORD)
        return value

    def _field(self, name: str, value: Any, secrets: set[str]) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if name in _MODEL_KEYS and isinstance(value, str):
            return self._model(value)
        if _SECRET.search(name) or (_PRIVATE.search(name) and not isinstance(value, int | float)):
            return WORD
        return self._clean(value, secrets)


def _card_label(match: re.Match[bytes]) -> bytes:
    return match[0] if match[2] in _CARD_LABELS else match[1] + b'"' + WORD.encode() + b'"'


def _secrets(value: Any, under: bool = False) -> list[str]:
    """Every text below a field whose name is a secret's."""
    if isinstance(value, dict):
        return [text for name, inner in value.items() for text in _secrets(inner, under or bool(_SECRET.search(name)))]
    if isinstance(value, list):
        return [text for inner in value for text in _secrets(inner, under)]
    return [value] if under and isinstance(value, str) else []
