"""TARGET as a person types it: one engine, its nodes, and no secrets in it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from collector.errors import ConfigError
from collector.model import Source

EXAMPLE = "for example host:30000, or host0:30000,host1:30000 for an engine of two nodes (node 0 first)"

_PAGES = ("/metrics", "/v1/loads", "/server_info", "/get_load", "/health")


@dataclass(frozen=True, slots=True)
class Target:
    """One engine to be read. `engine` is the id: the text as given; `nodes` are base URLs without a trailing slash, node 0 first.

    `hardware` are URLs of dcgm-exporter pages of its nodes, `local` what is read of the very node that we run on."""

    engine: str
    nodes: tuple[str, ...]
    api_key: str | None = field(default=None, repr=False)
    hardware: tuple[str, ...] = ()
    local: frozenset[Source] = frozenset()

    def __post_init__(self) -> None:
        if self.api_key is not None and not (
            self.api_key and self.api_key.isascii() and self.api_key.isprintable() and " " not in self.api_key
        ):
            raise ConfigError("the API key is empty or holds characters that a header cannot carry; look at the variable it comes from")


def parse_target(text: str, api_key: str | None = None) -> Target:
    """`host:port` or an http(s) base URL; a comma joins the nodes of one engine, node 0 first. ConfigError for anything else.

    Of a URL with a user name or password nothing is repeated in the error.
    """
    parts = [part.strip() for part in text.split(",")]
    nodes = tuple(_node(part) for part in parts)
    if len(set(nodes)) < len(nodes):
        raise ConfigError(f"{text!r} names a node twice; {EXAMPLE}")
    return Target(",".join(parts), nodes, api_key)


def with_machines(target: Target, pages: Sequence[str], local: frozenset[Source] = frozenset()) -> Target:
    """The target with its machines' pages: host:port of a dcgm-exporter, or the full URL of its page. ConfigError for anything else."""
    return replace(target, hardware=tuple(dict.fromkeys(map(_exporter, pages))), local=local)


def _exporter(text: str) -> str:
    example = "for example --hardware node0:9400, or the full URL of a dcgm-exporter's page"
    if "@" in text or "?" in text or "#" in text:  # a password or a key may be in it: not repeated
        raise ConfigError(f"--hardware may not hold a user name, query or fragment; {example}")
    scheme, separator, _ = text.partition("://")
    try:
        url = urlsplit(text if separator else f"http://{text}")
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or (port is None and not separator) or not text.isprintable() or any(map(str.isspace, text)):
        raise ConfigError(f"--hardware {text[:80]!r} is no host and port or URL; {example}")
    if separator and scheme.lower() not in {"http", "https"}:
        raise ConfigError(f"--hardware: {scheme[:20]!r} is no scheme to read a page by, only http and https are; {example}")
    return f"{url.scheme}://{url.netloc.lower()}{url.path.rstrip('/') or '/metrics'}"


def _node(text: str) -> str:
    if not text:
        raise ConfigError(f"an empty target; {EXAMPLE}")
    if "@" in text:
        raise ConfigError("a target may not hold a user name or password; give the engine's key with --api-key-env NAME")
    if "?" in text or "#" in text:  # a key may be in it: not repeated either
        raise ConfigError(f"a target may not hold a query or fragment; give the engine's base URL, {EXAMPLE}")
    if any(char.isspace() or not char.isprintable() for char in text):
        raise ConfigError(f"{text!r} holds spaces or control characters; {EXAMPLE}")
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme.lower() not in {"", "http", "https"}:
        raise ConfigError(f"{scheme!r} is no scheme to read an engine by, only http and https are; {EXAMPLE}")
    try:
        url = urlsplit(text if scheme else f"http://{text}")
        host, port = url.hostname, url.port
    except ValueError:
        raise ConfigError(f"{text!r} is no host and port; {EXAMPLE}") from None
    if not host or port == 0 or (port is None and not scheme):
        raise ConfigError(f"{text!r} has no {'host' if not host else 'port'}; {EXAMPLE}")
    path = url.path.rstrip("/")
    if path.endswith(_PAGES):
        raise ConfigError(f"{text!r} is one page of an engine; give its base URL, {EXAMPLE}")
    return f"{url.scheme}://{url.netloc.lower()}{path}"
