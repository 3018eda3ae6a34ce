"""What the HTTP server counts about itself, around every request: endpoints, statuses, and the price of `/v1/loads`."""

from __future__ import annotations

from collections import Counter

from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workload.face import specs
from workload.face.exposed import Exposed


class HttpMetrics:
    """The frontend's HTTP families; one per process."""

    def __init__(self, *, model_name: str, engine_type: str) -> None:
        self.http = Exposed(specs.HTTP, {})
        self.keys_active = self.http.gauge("routing_keys_active")
        self._loads = Exposed((specs.GET_LOADS,), {"model_name": model_name, "engine_type": engine_type})

    def get_loads(self, seconds: float) -> None:
        """One `/v1/loads` call, the reading of the snapshots alone."""
        self._loads.histogram("get_loads_duration_seconds").observe(seconds)


class CountRequests:
    """ASGI middleware. The endpoint is the matched route's path, and the bare path where no route takes the request."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app = app
        self._metrics = metrics
        self._keys: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        http = self._metrics.http
        endpoint, method = _endpoint(scope), scope["method"]
        key = Headers(scope=scope).get("x-smg-routing-key")  # what SGLang's gateway marks a session with

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                http.counter("http_responses_total", endpoint, str(message["status"]), method).inc()
            await send(message)

        http.counter("http_requests_total", endpoint, method).inc()
        http.gauge("http_requests_active", endpoint, method).inc()
        if key:
            self._hold(key, 1)
        try:
            await self._app(scope, receive, counted)
        finally:
            http.gauge("http_requests_active", endpoint, method).dec()
            if key:
                self._hold(key, -1)

    def _hold(self, key: str, change: int) -> None:
        self._keys[key] += change
        self._keys += Counter()  # drops the keys that nobody holds
        self._metrics.keys_active.set(len(self._keys))


def _endpoint(scope: Scope) -> str:
    for route in scope["app"].routes:
        match, _ = route.matches(scope)
        if match == Match.FULL:
            return str(route.path)
    return str(scope["path"])
