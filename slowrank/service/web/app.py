"""The service's web face put together: API, pages, /metrics and health checks behind one guard."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp

from collector.exporter import CONTENT_TYPE
from slowrank.service.service import Service
from slowrank.service.web.api import api
from slowrank.service.web.guard import Guard
from slowrank.service.web.pages import pages
from slowrank.service.web.views import Health


def web(service: Service) -> ASGIApp:
    """The application. It keeps no state: all of it is the service's."""
    app = FastAPI(
        title="slowrank",
        version=version("slowrank"),
        description="Which rank makes an LLM inference cluster slow, why, and what it costs. Read only.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(api(service))
    app.include_router(pages(service))

    @app.get("/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE: {}}}}, include_in_schema=False)
    async def metrics() -> Response:
        return Response(await service.exporter.page(), media_type=CONTENT_TYPE)

    @app.get("/healthz", summary="Whether the service lives", responses={503: {"model": Health}})
    async def healthz() -> Health:
        return _health(service.hung())  # type: ignore[return-value]  # a Response passes through FastAPI as it is

    @app.get("/readyz", summary="Whether answers mean something yet", responses={503: {"model": Health}})
    async def readyz() -> Health:
        return _health(service.unready())  # type: ignore[return-value]

    return Guard(app, lambda: service.plan.token, lambda: service.plan.config.service.external_url)


def _health(trouble: str | None) -> JSONResponse:
    return JSONResponse(Health(status=trouble or "ok").model_dump(), 200 if trouble is None else 503)
