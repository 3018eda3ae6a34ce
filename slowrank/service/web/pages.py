"""Pages for people: the fleet at a glance, one engine with its heat maps, the history of incidents. No script, nothing from elsewhere.

Foreign text passes `safe` or `prose`, then jinja2's autoescape; the policy in the response's head then forbids all but our style sheet.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from functools import cache
from importlib import resources
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import HTMLResponse, Response
from jinja2 import ChoiceLoader, Environment, PackageLoader

from collector.errors import ConfigError
from diagnose.alerts import history
from diagnose.alerts.history import Question
from diagnose.incident_model import Incident
from diagnose.report import html
from diagnose.report import text as words
from diagnose.report.plain import percent, quantity, safe, utc
from slowrank.incidents import lasted, state_of
from slowrank.service.service import Service
from slowrank.service.watch import Said, Watch
from slowrank.service.web.api import IncidentId, Key, troubles
from slowrank.service.web.views import find, key_of

REFRESH = 10
"""s after which the browser asks again: a verdict's interval."""

SHOWN = 200
"""Incidents on a page."""

SPARK = (360, 36)
"""Size of the small chart of lost time, an hour wide."""

SPARK_TOP = 0.2
"""Lost time to which the small chart reaches at least: four times what a rule blames, so that healthy noise stays a flat line."""


def pages(service: Service) -> APIRouter:
    """Their routes; they are no part of the API's description."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @router.get("/")
    async def fleet() -> HTMLResponse:
        now = time.time()
        rows = sorted((_row(service, watch, now) for watch in service.fleet.watches), key=lambda row: (row["order"], row["name"]))
        live = [_incident(i) for i in service.office.open_incidents()]
        tally = {mood: sum(row["mood"] == mood for row in rows) for mood in ("page", "ticket", "note", "healthy", "blind")}
        return _page("fleet.html.j2", rows=rows, tally=tally, live=live, troubles=troubles(service.problems()), at=utc(now))

    @router.get("/engines/{key}")
    async def engine(key: Key) -> HTMLResponse:
        watch = find(service, key)
        if watch is None:
            raise HTTPException(404, "there is no such engine; it may have left the list")
        now, look = time.time(), watch.look
        article = None if look is None else await asyncio.to_thread(html.article, 0, look.diagnosis, look.window)
        past = await _history(service, Question(watch.spec.name, None, None, None, 20))
        return _page("engine.html.j2", row=_row(service, watch, now), e=article, reading=_reading(watch), past=past, at=utc(now))

    @router.get("/incidents")
    async def incidents(limit: Annotated[int, Query(ge=1, le=SHOWN)] = SHOWN) -> HTMLResponse:
        past = await _history(service, Question(limit=limit))
        return _page("incidents.html.j2", past=past, at=utc(time.time()))

    @router.get("/incidents/{incident}")
    async def incident(incident: IncidentId) -> HTMLResponse:
        try:
            found = await asyncio.to_thread(history.find, service.office.file, incident)
        except ConfigError as error:
            raise HTTPException(503, str(error)) from None
        if found is None:
            raise HTTPException(404, "there is no such incident; old ones are deleted")
        return _page(
            "incident.html.j2", i=_incident(found), events=[(utc(e.at), e.kind.value, e.what) for e in found.events], at=utc(time.time())
        )

    @router.get("/style.css")
    async def style() -> Response:
        return Response(_style()[0], media_type="text/css", headers={"cache-control": "max-age=86400"})  # another one has another address

    return router


def _page(template: str, **shown: Any) -> HTMLResponse:
    return HTMLResponse(_environment().get_template(template).render(refresh=REFRESH, style=_style()[1], **shown))


@cache
def _environment() -> Environment:
    return html.environment().overlay(
        loader=ChoiceLoader([PackageLoader(__package__, "templates"), PackageLoader("diagnose.report", "templates")])
    )


@cache
def _style() -> tuple[str, str]:
    """The style sheet, and what tells it from other versions of itself."""
    css = html.style() + (resources.files(__package__) / "templates/service.css").read_text(encoding="utf-8")
    return css, hashlib.sha256(css.encode()).hexdigest()[:8]


async def _history(service: Service, question: Question) -> list[dict[str, Any]]:
    """Incidents, or none when the file cannot be read: the page's other parts are worth showing, and the service's problems say it."""
    try:
        return [_incident(i) for i in await asyncio.to_thread(history.ask, service.office.file, question)]
    except ConfigError:
        return []


_ORDER = {"page": 0, "ticket": 1, "blind": 2, "note": 3, "healthy": 4}


def _row(service: Service, watch: Watch, now: float) -> dict[str, Any]:
    """One engine of the fleet. One that gives no pages is grey, whatever its last verdict was."""
    look, age, up = watch.look, watch.age(now), watch.up(now)
    mood = "blind" if look is None or not up else html.mood(look.diagnosis.verdict)
    verdict = None if look is None else look.diagnosis.verdict
    if look is None:
        subject = "no page yet" if age is None else "first window is filling"
    else:
        subject = (
            words.subject(look.diagnosis.verdict)
            if up
            else f"no page for {lasted(age or 0.0)}; before: {words.subject(look.diagnosis.verdict)}"
        )
    live = service.office.open_incidents(watch.spec.name)
    return {
        "key": key_of(watch.spec.name),
        "name": safe(watch.spec.name, 160),
        "labels": [(name, safe(value, 80)) for name, value in watch.spec.labels],
        "mood": mood,
        "order": _ORDER.get(mood, 3),
        "subject": subject,
        "summary": verdict.summary if verdict is not None and up else "",
        "lost": "unknown" if verdict is None or verdict.lost_time.share is None else percent(verdict.lost_time.share),
        "step": "unknown" if look is None else quantity(look.diagnosis.step_time, "s"),
        "ranks": "?" if look is None else str(len(look.window.ranks)),
        "judged": "never" if look is None else f"{lasted(now - look.window.end)} ago",
        "live": [_incident(i) for i in live],
        "spark": _spark(list(watch.verdicts), now),
    }


def _spark(said: list[Said], now: float) -> dict[str, Any]:
    """Lost time of the last hour as the points of polylines; a gap where it was not known."""
    wide, high = SPARK
    top = max([SPARK_TOP, *(one.lost for one in said if one.lost is not None)])
    lines: list[list[str]] = [[]]
    last = None
    for one in said:
        x = wide * (1.0 - (now - one.end) / 3600.0)
        if one.lost is None or x < 0:
            continue
        if last is not None and one.end - last > 60.0:
            lines.append([])
        last = one.end
        lines[-1].append(f"{x:.1f},{high - 1 - (high - 2) * one.lost / top:.1f}")
    return {"lines": [" ".join(points) for points in lines if points], "top": percent(top)}


def _incident(i: Incident) -> dict[str, Any]:
    return {
        "id": i.id,
        "key": key_of(i.engine),
        "engine": safe(i.engine, 160),
        "cause": safe(i.cause, 60),
        "klass": i.klass.value,
        "ranks": words.ranks_in_words(i.ranks),
        "state": state_of(i) + (" (no data)" if i.stale and i.open else "") + ("" if i.confirmed or i.open else ", never confirmed"),
        "severity": i.severity.value,
        "confirmed": i.confirmed is not None,
        "mood": i.severity.value if i.open and i.resolved is None else "past",
        "share": "unknown" if i.share is None else percent(i.share),
        "peak": "unknown" if i.peak_share is None else percent(i.peak_share),
        "opened": utc(i.opened),
        "lasted": lasted(i.last_seen - i.opened),
        "summary": i.summary,
    }


def _reading(watch: Watch) -> list[dict[str, str]]:
    """How each page of each node comes."""
    rows = []
    for (node, source), pages in sorted(watch.counts.pages.items()):
        total = sum(pages.outcomes.values())
        rows.append(
            {
                "node": safe(node, 120),
                "source": source,
                "good": f"{pages.outcomes.get('ok', 0):,} of {total:,}",
                "took": quantity(pages.seconds / total, "s") if total else "unknown",
                "error": safe(pages.error or "", 300),
            }
        )
    return rows
