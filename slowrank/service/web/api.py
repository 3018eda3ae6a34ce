"""The API for programs, version 1: engines, verdicts, incidents, reports. Everything is read, nothing can be changed."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response

from collector.errors import ConfigError
from collector.model import Problem
from diagnose.alerts import history
from diagnose.alerts.history import Question
from diagnose.report import html
from diagnose.report.json import to_json
from diagnose.report.plain import safe
from slowrank.incidents import to_json as incidents_to_json
from slowrank.service.service import Service
from slowrank.service.watch import Look, Watch
from slowrank.service.web import views

Key = Annotated[str, Path(pattern="^[0-9a-f]{12}$", description="an engine's id, as /api/v1/engines lists it")]
Filter = Annotated[str | None, Query(pattern="^[0-9a-f]{12}$", description="only of the engine with this id")]
Limit = Annotated[int, Query(ge=1, le=1000, description="at most so many, the newest")]
IncidentId = Annotated[str, Path(pattern="^[0-9A-Za-z_-]{1,64}$")]
Which = Literal["all", "open", "suspected", "confirmed", "resolved", "closed"]

_FAILURES: dict[int | str, dict[str, Any]] = {404: {"model": views.Failure, "description": "there is none with this id"}}
_FILE: dict[int | str, dict[str, Any]] = {503: {"model": views.Failure, "description": "the incident file cannot be read now"}}
_REPORT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}, "text/html": {"schema": {"type": "string"}}}}
}


def api(service: Service) -> APIRouter:
    """Its routes."""
    router = APIRouter(prefix="/api/v1")

    @router.get("/engines", summary="All engines at a glance")
    async def engines() -> views.Engines:
        return views.Engines(
            engines=[views.engine(service, watch) for watch in service.fleet.watches],
            problems=troubles(service.problems()),
        )

    @router.get("/engines/{key}", summary="One engine, and how it is read", responses=_FAILURES)
    async def engine(key: Key) -> views.EngineDetail:
        return views.detail(service, _found(service, key))

    @router.get("/verdicts", summary="Verdicts of the last hour, the newest first", responses=_FAILURES)
    async def verdicts(engine: Filter = None, limit: Limit = 100) -> views.Verdicts:
        watches = service.fleet.watches if engine is None else (_found(service, engine),)
        said = sorted(((s.end, w.spec.name, s) for w in watches for s in w.verdicts), key=lambda one: one[:2], reverse=True)
        return views.Verdicts(verdicts=[views.verdict(name, one) for _, name, one in said[:limit]])

    @router.get("/incidents", summary="Incidents, the newest first", responses={**_FAILURES, **_FILE})
    async def incidents(engine: Filter = None, state: Which = "all", limit: Limit = 100) -> dict[str, Any]:
        name = None if engine is None else _found(service, engine).spec.name
        states = {"all": None, "open": ("suspected", "confirmed", "resolved")}.get(state, (state,))
        try:
            found = await asyncio.to_thread(history.ask, service.office.file, Question(name, states, None, None, limit))
        except ConfigError as error:
            raise HTTPException(503, str(error)) from None
        return incidents_to_json(found)

    @router.get("/incidents/{incident}", summary="One incident", responses={**_FAILURES, **_FILE})
    async def incident(incident: IncidentId) -> dict[str, Any]:
        try:
            found = await asyncio.to_thread(history.find, service.office.file, incident)
        except ConfigError as error:
            raise HTTPException(503, str(error)) from None
        if found is None:
            raise HTTPException(404, f"there is no incident {incident}")
        return incidents_to_json([found])

    @router.get(
        "/report", summary="The newest diagnoses in full (docs/report.schema.json), or as one page", responses={**_FAILURES, **_REPORT}
    )
    async def report(engine: Filter = None, form: Annotated[Literal["json", "html"], Query(alias="format")] = "json") -> Response:
        watches = service.fleet.watches if engine is None else (_found(service, engine),)
        looks = [watch.look for watch in watches if watch.look is not None]
        if form == "json":
            return JSONResponse(await asyncio.to_thread(to_json, [look.diagnosis for look in looks]))
        return await asyncio.to_thread(drawn, looks)

    return router


def drawn(looks: list[Look]) -> HTMLResponse:
    """The report as a page, whose own style sheet the browser is told of by its hash."""
    page = html.render_all([(look.diagnosis, look.window) for look in looks])
    return HTMLResponse(page, headers={"content-security-policy": html.policy(html.style())})


def troubles(problems: tuple[Problem, ...]) -> list[views.Trouble]:
    """As the API writes them."""
    return [views.Trouble(where=safe(p.where), what=safe(p.what), then=safe(p.then)) for p in problems]


def _found(service: Service, key: str) -> Watch:
    watch = views.find(service, key)
    if watch is None:
        raise HTTPException(404, f"there is no engine {key}; /api/v1/engines lists them")
    return watch
