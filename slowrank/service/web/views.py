"""What the API says of engines and verdicts: the shapes of its answers, and how they are made of the service's state."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from collector.engines.kinds import PATHS
from diagnose.report.plain import safe
from slowrank.service.cadence import INFO
from slowrank.service.service import Service
from slowrank.service.watch import Said, Watch


class Trouble(BaseModel):
    """Something wrong: where, what was seen, what to do."""

    where: str
    what: str
    then: str


class Verdict(BaseModel):
    """One verdict in short. Shares are of step time; times are UTC."""

    engine: str
    start: datetime | None
    end: datetime | None
    klass: str = Field(serialization_alias="class")
    cause: str | None
    ranks: list[int]
    share: float | None
    lost_time: float | None
    step_time: float | None = Field(description="seconds")
    confidence: float
    summary: str


class EngineView(BaseModel):
    """One engine at a glance."""

    id: str = Field(description="the key in addresses of this API")
    engine: str
    kind: str | None = Field(description="sglang or vllm; null before a page was read")
    nodes: list[str]
    labels: dict[str, str]
    origin: str
    up: bool
    age: float | None = Field(description="seconds since the newest usable page; null before the first")
    ranks: int | None
    open_incidents: int
    verdict: Verdict | None = Field(description="the newest; null before the first")


class SourceView(BaseModel):
    """One kind of page of one node."""

    node: str
    source: str
    interval: float | None = Field(description="seconds between two pages now")
    outcomes: dict[str, int]
    seconds: float = Field(description="sum of the time from request to reply: what reading may have cost the engine at most")
    bytes: int
    error: str | None = Field(description="of the newest page, if it was not usable")


class EngineDetail(EngineView):
    """One engine with how it is read."""

    suspected: bool
    has_past: bool = Field(description="whether there is a healthy past to compare with")
    sources: list[SourceView]
    problems: list[Trouble]


class Engines(BaseModel):
    """All engines, and what is wrong with the service itself."""

    engines: list[EngineView]
    problems: list[Trouble]


class Verdicts(BaseModel):
    """The newest first."""

    verdicts: list[Verdict]


class Health(BaseModel):
    """`ok`, or why not."""

    status: str


class Failure(BaseModel):
    """Why there is no answer."""

    detail: str


def key_of(engine: str) -> str:
    """An engine's key in addresses: names hold slashes, commas and whatever people like."""
    return hashlib.sha256(engine.encode("utf-8", "replace")).hexdigest()[:12]


def find(service: Service, key: str) -> Watch | None:
    """The watch of the engine with this key."""
    return next((watch for watch in service.fleet.watches if key_of(watch.spec.name) == key), None)


def engine(service: Service, watch: Watch) -> EngineView:
    """At a glance."""
    return EngineView(**_glance(service, watch))


def detail(service: Service, watch: Watch) -> EngineDetail:
    """With how it is read."""
    problems = () if watch.look is None else watch.look.diagnosis.problems
    interval = {PATHS[source].rpartition("/")[2]: watch.cadence[source] for source in watch.cadence if source is not INFO}
    return EngineDetail(
        **_glance(service, watch),
        suspected=watch.cadence.suspected,
        has_past=watch.past.baseline(time.time()) is not None,
        sources=[
            SourceView(
                node=node,
                source=source,
                interval=interval.get(source),
                outcomes=pages.outcomes,
                seconds=pages.seconds,
                bytes=pages.bytes,
                error=None if pages.error is None else safe(pages.error),
            )
            for (node, source), pages in sorted(watch.counts.pages.items())
        ],
        problems=[Trouble(where=safe(p.where), what=safe(p.what), then=safe(p.then)) for p in problems],
    )


def _glance(service: Service, watch: Watch) -> dict[str, Any]:
    now, look = time.time(), watch.look
    return {
        "id": key_of(watch.spec.name),
        "engine": safe(watch.spec.name),
        "kind": None if look is None else look.window.engine.kind,
        "nodes": list(watch.spec.nodes),
        "labels": {name: safe(value) for name, value in watch.spec.labels},
        "origin": safe(watch.spec.origin),
        "up": watch.up(now),
        "age": watch.age(now),
        "ranks": None if look is None else len(look.window.ranks),
        "open_incidents": len(service.office.open_incidents(watch.spec.name)),
        "verdict": None if look is None else verdict(watch.spec.name, Said.of(look.diagnosis)),
    }


def verdict(name: str, said: Said) -> Verdict:
    """As the API writes it."""
    return Verdict(
        engine=safe(name),
        start=moment(said.start),
        end=moment(said.end),
        klass=said.klass.value,
        cause=said.cause,
        ranks=list(said.ranks),
        share=said.share,
        lost_time=said.lost,
        step_time=said.step_time,
        confidence=said.confidence,
        summary=safe(said.summary, 600),
    )


def moment(seconds: float) -> datetime | None:
    """Unix seconds as a time; None for what is none."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
