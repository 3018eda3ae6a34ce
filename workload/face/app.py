"""The HTTP server of the engine, as a scraper of SGLang 0.5.23 finds it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import FastAPI, Query, Response
from fastapi.responses import PlainTextResponse
from starlette.routing import Mount

from workload.face import loads_page
from workload.face.auth import RequireKey
from workload.face.http_metrics import CountRequests, HttpMetrics
from workload.face.loads import SnapshotReader


def create_app(
    *,
    loads_path: Path | str,
    ranks: int,
    version: str = "0.5.23",
    accelerator: str | None,
    server_info: Mapping[str, object],
    healthy: Callable[[], bool],
    metrics: bool = True,
    api_key: str | None = None,
) -> FastAPI:
    """The engine's server.

    `loads_path` is the ranks' snapshot file. `accelerator` names the device on every `/v1/loads` page; None prints null, as SGLang
    does on a CPU. `server_info` is served as it is at each request, with the version added; its `served_model_name` and
    `disaggregation_mode` label the frontend's own metrics. `healthy` must return at once. `metrics` is `--enable-metrics` and needs
    PROMETHEUS_MULTIPROC_DIR, `api_key` is `--api-key`.
    """
    app = FastAPI()
    if api_key is not None:
        app.add_middleware(RequireKey, key=api_key)
    observe = _add_metrics(app, server_info) if metrics else None
    _add_loads(app, SnapshotReader(loads_path, ranks), ranks, version, accelerator, observe)
    _add_state(app, server_info, version, healthy)
    return app


def _add_metrics(app: FastAPI, server_info: Mapping[str, object]) -> Callable[[float], None]:
    """Mounts `/metrics` and counts requests; returns where `/v1/loads` reports its own duration, in seconds."""
    # imported here: the files' directory must be in the environment first, and a server without metrics needs none
    from prometheus_client import CollectorRegistry, make_asgi_app
    from prometheus_client.multiprocess import MultiProcessCollector

    role = str(server_info.get("disaggregation_mode") or "null")
    counts = HttpMetrics(model_name=str(server_info.get("served_model_name", "")), engine_type="unified" if role == "null" else role)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    mount = Mount("/metrics", make_asgi_app(registry=registry))
    mount.path_regex = re.compile("^/metrics(?P<path>.*)$")  # as SGLang: a plain mount would redirect /metrics to /metrics/
    app.routes.append(mount)
    app.add_middleware(CountRequests, metrics=counts)  # the last one added stands outermost: refusals are counted too
    return counts.get_loads


def _add_loads(
    app: FastAPI, reader: SnapshotReader, ranks: int, version: str, accelerator: str | None, observe: Callable[[float], None] | None
) -> None:
    @app.get("/v1/loads")
    async def loads(
        dp_rank: int | None = None,
        include: str | None = None,
        page_format: Annotated[str | None, Query(alias="format")] = None,
    ) -> Response:
        begun = time.perf_counter()
        wanted = range(ranks) if dp_rank is None else (dp_rank,)
        snapshots = [snapshot for rank in wanted if (snapshot := reader.read(rank)) is not None]
        if observe is not None:
            observe(time.perf_counter() - begun)
        sections = loads_page.parse_include(include)
        try:
            if page_format == "prometheus":
                text = loads_page.as_prometheus(snapshots, sections)
                return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
            objects = [loads_page.as_object(snapshot, sections) for snapshot in snapshots]
        except loads_page.UnknownSectionError:
            # SGLang 0.5.23 fails outside its own error handling here: the same reply, without a traceback in the log
            return PlainTextResponse("Internal Server Error", 500)
        return _json(
            {
                "timestamp": datetime.now(UTC).isoformat(timespec="microseconds"),
                "version": version,
                "accelerator": accelerator,
                "num_accelerators": 1,  # behind one rank: tp_size = attn_dp_size here
                "loads": objects,
            }
        )


def _add_state(app: FastAPI, server_info: Mapping[str, object], version: str, healthy: Callable[[], bool]) -> None:
    @app.get("/server_info")
    @app.get("/get_server_info")  # the deprecated spelling, still served by SGLang 0.5.23
    async def info() -> Response:
        return _json({**server_info, "version": version})

    @app.get("/health")
    @app.get("/health_generate")
    async def health() -> Response:
        return Response(status_code=200 if healthy() else 503)


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
