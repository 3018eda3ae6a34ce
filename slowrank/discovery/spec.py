"""An engine that is to be watched, and how its nodes are reached. Frozen values: two that are equal need no restart."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collector.errors import ConfigError
from collector.model import Clock, Source
from collector.targets import Target, parse_target, with_machines
from diagnose.alerts.secret import Secret
from slowrank.config.model import Access

ENGINE_LABEL = "engine"
"""The label by which a person says which targets are one engine."""

CLOCKS = {"auto": None, "lockstep": Clock.FORWARD, "independent": Clock.NONE}


@dataclass(frozen=True, slots=True)
class Reach:
    """How servers are reached."""

    token: Secret | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def trust(self) -> ssl.SSLContext | None:
        """TLS as configured; None: as the system has it. ConfigError when a file cannot be used."""
        if self.ca_file is None and self.cert_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(f) for f in (self.ca_file, self.cert_file, self.key_file) if f is not None)
            raise ConfigError(f"{files}: cannot be used for TLS ({error.strerror or error}); give PEM files that can be read") from None
        return context


@dataclass(frozen=True, slots=True)
class Found:
    """One target as a list has it: the base URL of a node."""

    url: str
    labels: tuple[tuple[str, str], ...] = ()  # sorted; without those that start with __
    reach: Reach = Reach()
    origin: str = ""  # the list, for people

    @property
    def engine(self) -> str | None:
        """The engine that a person put it into."""
        return dict(self.labels).get(ENGINE_LABEL)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine to watch. `name` is its id everywhere; `labels` go with it to every output."""

    name: str
    nodes: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    reach: Reach = Reach()
    timeout: float | None = None  # s for one request; None: the service's
    clock: Clock | None = None  # as a person says it
    hardware: tuple[str, ...] = ()  # dcgm-exporter pages
    local: frozenset[Source] = frozenset()  # what is read of this machine
    gpus: tuple[tuple[int, tuple[str, ...]], ...] = ()  # rank -> its cards, as a person says it
    origin: str = field(default="", compare=False)

    @property
    def target(self) -> Target:
        """As the collector wants it."""
        engine = Target(self.name, self.nodes, None if self.reach.token is None else self.reach.token.reveal())
        return with_machines(engine, self.hardware, self.local)


def base_url(text: str) -> str:
    """The base URL of one node as a person or a list writes it. ConfigError when it is none."""
    target = parse_target(text)
    if len(target.nodes) != 1:
        raise ConfigError(f"{text!r}: one node is wanted here; nodes of one engine are a list, or share a label {ENGINE_LABEL!r}")
    return target.nodes[0]


def sorted_labels(*tables: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels of all tables, later ones first in right; Prometheus' own (__...) are left out."""
    merged: dict[str, str] = {}
    for table in tables:
        merged |= table
    return tuple(sorted((name, value) for name, value in merged.items() if not name.startswith("__") and value != ""))


def reach_of(access: Access, folder: Path, token: tuple[str | None, Path | None] | None = None) -> Reach:
    """Secrets and files as configured. `token`: (variable, file) in place of the access' own. ConfigError when one cannot be had."""
    env, file = (access.token_env, access.token_file) if token is None else token
    if access.key_file is not None and access.cert_file is None:
        raise ConfigError(f"key_file = {access.key_file}: is the key of a certificate; give cert_file too")
    files = (_in(folder, file) for file in (access.ca_file, access.cert_file, access.key_file))
    reach = Reach(secret(env, file, folder, "token"), *files)
    reach.trust()  # now, and not when the first page is fetched
    return reach


def secret(env: str | None, file: Path | None, folder: Path, what: str) -> Secret | None:
    """From the environment or a file, or None when neither is named. ConfigError when it is not there, or both are named."""
    if env is not None and file is not None:
        raise ConfigError(f"{what}_env = {env} and {what}_file = {file} are both given; keep one")
    if env is not None:
        return Secret.from_env(env)
    return None if file is None else Secret.from_file(_within(folder, file))


def _in(folder: Path, file: Path | None) -> Path | None:
    return None if file is None else _within(folder, file)


def _within(folder: Path, file: Path) -> Path:
    return folder / file.expanduser()
