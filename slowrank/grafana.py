"""Dashboards to a Grafana, by its HTTP API: POST /api/dashboards/db, which all versions have. IO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from collector.errors import ConfigError
from slowrank.exits import UnreachableError

TIMEOUT = 10.0
"""s for one dashboard: Grafana answers in tens of milliseconds, and a database that is busy may take seconds."""

_REFUSED = {
    401: "the token is not valid; make one for a service account with the role Editor",
    403: "the token may not write dashboards; give its service account the role Editor",
    404: "is this Grafana's address, with the path that it is served under?",
    412: "it has one of that name under another uid, or one that provisioning owns; delete it, or change the provisioned files",
}


def push(
    url: str, token_file: Path, pages: Iterable[Mapping[str, Any]], transport: httpx.BaseTransport | None = None
) -> Iterator[tuple[str, str]]:
    """(uid, address) of each dashboard that was taken. ConfigError when Grafana refuses, UnreachableError when it does not answer."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r} is no address of a Grafana; give one that starts with http:// or https://")
    base = url.rstrip("/")
    with httpx.Client(headers={"authorization": f"Bearer {_token(token_file)}"}, timeout=TIMEOUT, transport=transport) as client:
        for page in pages:
            try:
                answer = client.post(f"{base}/api/dashboards/db", json={"dashboard": page, "overwrite": True, "message": "slowrank"})
            except httpx.HTTPError as error:
                raise UnreachableError(f"{base}: Grafana does not answer ({type(error).__name__}); check the address") from error
            if answer.status_code != 200:
                then = _REFUSED.get(answer.status_code, "look at Grafana's log")
                raise ConfigError(f"{base}: HTTP {answer.status_code} for dashboard {page['uid']}: {then}")
            yield page["uid"], f"{base}/d/{page['uid']}"


def _token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}: cannot be read ({type(error).__name__}); name a file that holds the token") from error
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"--token-file {file}: holds no token; it is one line of letters and digits")
    return token
