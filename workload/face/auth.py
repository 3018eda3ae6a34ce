"""The API key, as SGLang 0.5.23 asks for it with `--api-key`."""

from __future__ import annotations

import secrets

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PREFIXES = ("/health", "/ready", "/metrics")  # probes and scrapers are never asked


class RequireKey:
    """ASGI middleware: `Authorization: Bearer <key>` on everything but the open prefixes, or 401."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(OPEN_PREFIXES):
            given = Headers(scope=scope).get("authorization", "")
            if not secrets.compare_digest(given.encode(), self._expected):
                await JSONResponse({"error": "Unauthorized"}, 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)
