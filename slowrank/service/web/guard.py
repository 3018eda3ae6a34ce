"""The door: who may read, by which name, with which method; and what browsers may do with the answer. An ASGI middleware.

With a token, all but the two health checks ask for it: as a bearer token, or as the password of HTTP Basic, which is what a browser can
give. Without one we listen on loopback only, and answer to no foreign name, so that no page on the internet can read us through the
browser of someone here (DNS rebinding).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import json
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from diagnose.alerts.secret import Secret

OPEN = frozenset({"/healthz", "/readyz"})
"""Asked by machinery that holds no token; they say nothing of engines."""

POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """`token` and `external_url` are asked at each request, as a reload may change them."""

    def __init__(self, app: ASGIApp, token: Callable[[], Secret | None], external_url: Callable[[], str]) -> None:
        self._app, self._token, self._external_url = app, token, external_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets, and the server's lifespan is off
        refusal = self._refusal(scope)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("content-security-policy", POLICY)
                if "server" in headers:
                    del headers["server"]
            await send(message)

        if refusal is None:
            await self._app(scope, receive, sending)
            return
        status, why, more = refusal
        body = json.dumps({"detail": why}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
        await sending({"type": "http.response.start", "status": status, "headers": headers})
        await sending({"type": "http.response.body", "body": body})

    def _refusal(self, scope: Scope) -> tuple[int, str, list[tuple[bytes, bytes]]] | None:
        if scope["method"] != "GET":
            return 405, "everything here is read with GET", [(b"allow", b"GET")]
        headers, token = Headers(scope=scope), self._token()
        if token is None:
            return None if self._known(headers.get("host", "")) else (421, "unknown host name; use the address that is listened on", [])
        if scope["path"] in OPEN or _shows(headers.get("authorization", ""), token):
            return None
        return 401, "this needs the token of slowrank's configuration", [(b"www-authenticate", b'Basic realm="slowrank", charset="UTF-8"')]

    def _known(self, host: str) -> bool:
        """Whether a Host header names this machine's loopback, or the configured address."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name == "localhost" or name == urlsplit(self._external_url()).hostname:
                return True
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False


def _shows(authorization: str, token: Secret) -> bool:
    scheme, _, value = authorization.partition(" ")
    given = value.strip().encode()
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != "bearer":
        return False
    return hmac.compare_digest(given, token.reveal().encode())
