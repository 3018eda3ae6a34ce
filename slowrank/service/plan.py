"""A configuration made ready to be put in force: secrets read, addresses and files checked, nothing started. What is wrong is told here,
so that a reload either takes all of it or leaves all as it was."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from collector.errors import ConfigError
from collector.hardware.join import parse_gpus
from collector.hardware.local import lookers
from collector.model import Source as Kind
from diagnose.alerts.alertmanager import Alertmanager
from diagnose.alerts.pagerduty import ENDPOINT, PagerDuty
from diagnose.alerts.receiver import Receiver
from diagnose.alerts.routing import Route
from diagnose.alerts.secret import Secret
from diagnose.alerts.slack import Slack
from diagnose.alerts.webhook import Webhook
from diagnose.model import Class, Severity
from slowrank.config.load import Loaded
from slowrank.config.model import Alerts, Config, EngineTable
from slowrank.config.model import Receiver as ReceiverTable
from slowrank.discovery.shard import Shard
from slowrank.discovery.sources import Files, Http, Source
from slowrank.discovery.spec import CLOCKS, EngineSpec, base_url, reach_of, secret, sorted_labels


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a running service needs of its configuration."""

    config: Config
    host: str
    port: int  # 0: any free one
    token: Secret | None
    incidents: Path
    shard: Shard
    engines: tuple[EngineSpec, ...]  # of all shards, as what `sources` list
    sources: tuple[Source, ...]
    receivers: tuple[Receiver, ...]
    routes: tuple[Route, ...]
    secrets: tuple[Secret, ...]  # all that it holds, so that they can be kept out of the log


def prepare(loaded: Loaded) -> Plan:
    """The plan. ConfigError says what cannot be put in force, and why."""
    config, folder = loaded.config, loaded.folder
    host, port = _address(config.service.listen)
    token = secret(config.service.token_env, config.service.token_file, folder, "service.token")
    if token is None and not _loopback(host):
        raise ConfigError(
            f"service.listen = {config.service.listen}: is reachable from other machines, and no token is configured;"
            " set service.token_file or service.token_env, or listen on 127.0.0.1"
        )
    shard = Shard.parse(config.service.shard)
    _check_times(config)
    engines = tuple(_engine(table, folder) for table in config.engines)
    names = [engine.name for engine in engines]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"engines: {name} is configured {names.count(name)} times; give each engine once, and a name of its own")
    sources = tuple(_sources(config, folder))
    if not engines and not sources:
        raise ConfigError("there is nothing to watch; give TARGET, [[engines]], [[discovery.files]] or [[discovery.http]]")
    receivers, routes = _receivers(config.alerts, folder)
    if config.service.external_url:
        _url(config.service.external_url, "service.external_url")
    incidents = folder / config.service.incidents.expanduser()
    tokens = (token, *(engine.reach.token for engine in engines), *(one for source in sources for one in source.secrets))
    held = tuple(one for one in (*tokens, *(one for receiver in receivers for one in _held(receiver))) if one is not None)
    return Plan(config, host, port, token, incidents, shard, engines, sources, receivers, routes, held)


def _held(receiver: Receiver) -> Iterator[Secret | None]:
    """What a receiver must not give away: its key, or its address where that is the key."""
    match receiver:
        case Webhook():
            yield from (receiver.key, receiver.url)
        case Slack():
            yield receiver.url
        case PagerDuty():
            yield receiver.key


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isdecimal() or not port.isascii() or int(port) > 65_535:
        raise ConfigError(f"service.listen = {text!r}: is no address and port; write it as 127.0.0.1:9469")
    return host, int(port)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_times(config: Config) -> None:
    judging = config.diagnosis
    if judging.window < 4 * config.scrape.loads:
        raise ConfigError(
            f"diagnosis.window = {judging.window:g} s is less than four pages at scrape.loads = {config.scrape.loads:g} s; make it longer"
        )
    if judging.window > 3600:
        raise ConfigError(f"diagnosis.window = {judging.window:g} s: an hour is the most; minutes-old troubles are what incidents are for")


def _engine(table: EngineTable, folder: Path) -> EngineSpec:
    nodes = tuple(base_url(node) for node in table.nodes)
    if len(set(nodes)) < len(nodes):
        raise ConfigError(f"engines: {', '.join(table.nodes)} names a node twice")
    local = frozenset(source for source, wanted in ((Kind.PROCFS, table.procfs), (Kind.NVML, table.nvml)) if wanted)
    spec = EngineSpec(
        name=table.name or ",".join(table.nodes),
        nodes=nodes,
        labels=sorted_labels(table.labels),
        reach=reach_of(table, folder),
        timeout=table.timeout,
        clock=CLOCKS[table.clock],
        hardware=table.hardware,
        local=local,
        gpus=tuple(parse_gpus(table.gpus).items()) if table.gpus is not None else (),
        origin="the configuration",
    )
    _ = spec.target, list(lookers(local))  # now, and not when the first page is fetched
    return spec


def _sources(config: Config, folder: Path) -> Iterator[Source]:
    for table in config.discovery.files:
        patterns = [str(folder / Path(pattern).expanduser()) for pattern in table.paths]
        yield Files(patterns, table.labels, reach_of(table, folder))
    for asked in config.discovery.http:
        own, targets = reach_of(asked, folder), reach_of(asked, folder, (asked.target_token_env, asked.target_token_file))
        yield Http(_url(asked.url, "discovery.http.url"), asked.every, asked.labels, own, targets)


def _url(text: str, what: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"{what}: is no http(s) address without user name; write it as https://host/path")
    return text


def _receivers(alerts: Alerts, folder: Path) -> tuple[tuple[Receiver, ...], tuple[Route, ...]]:
    found: list[tuple[Receiver, ReceiverTable]] = []
    for n, am in enumerate(alerts.alertmanager):
        found.append((Alertmanager.at(_name(am, "alertmanager", n), am.url), am))
    for n, hook in enumerate(alerts.webhook):
        held = secret(hook.url_env, hook.url_file, folder, "alerts.webhook.url")
        if (held is None) is (hook.url is None):
            raise ConfigError(f"alerts.webhook[{n}]: give one of url, url_env and url_file")
        url = hook.url if held is None else held.reveal()
        key = secret(hook.key_env, hook.key_file, folder, "alerts.webhook.key")
        found.append((Webhook.at(_name(hook, "webhook", n), url or "", key), hook))
    for n, slack in enumerate(alerts.slack):
        found.append(
            (Slack.at(_name(slack, "slack", n), _needed(slack.url_env, slack.url_file, folder, f"alerts.slack[{n}]", "url")), slack)
        )
    for n, duty in enumerate(alerts.pagerduty):
        routing = _needed(duty.key_env, duty.key_file, folder, f"alerts.pagerduty[{n}]", "key")
        found.append((PagerDuty.with_key(_name(duty, "pagerduty", n), routing, duty.url or ENDPOINT), duty))
    names = [receiver.name for receiver, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"alerts: two receivers are called {name!r}; the name is the key of what is owed to each, give another")
    routes = tuple(
        Route(r.name, frozenset(map(Severity, table.severities)), frozenset(Class(klass) for klass in table.classes)) for r, table in found
    )
    return tuple(receiver for receiver, _ in found), routes


def _name(table: ReceiverTable, kind: str, number: int) -> str:
    return table.name or (kind if number == 0 else f"{kind}-{number + 1}")


def _needed(env: str | None, file: Path | None, folder: Path, where: str, what: str) -> Secret:
    held = secret(env, file, folder, f"{where}.{what}")
    if held is None:
        raise ConfigError(f"{where}: needs {what}_env or {what}_file")
    return held
