"""The API against its own description: schemathesis asks each route with values that fit and values that do not."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from slowrank.config.load import load
from slowrank.service.fleet import _Running
from slowrank.service.plan import prepare
from slowrank.service.service import Service
from slowrank.service.web.app import web


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, tell_story: Any) -> Any:
    """The description of a service that watches one engine with a fault, served on loopback."""
    folder: Path = tmp_path_factory.mktemp("contract")
    (folder / "c.toml").write_text('[service]\nincidents = "c.db"\n[[engines]]\nnodes = ["a:1"]\n')
    service = Service(prepare(load(folder / "c.toml", {})))
    service.fleet._running["story"] = _Running(tell_story(service, "story", {"zone": "z"}), None)  # type: ignore[arg-type]
    service._reconciled = True
    server = uvicorn.Server(uvicorn.Config(web(service), port=0, lifespan="off", log_level="critical"))
    started = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(server, started)))
    thread.start()
    try:
        assert started.wait(30)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/api/v1/openapi.json")
    finally:
        server.should_exit = True
        thread.join(30)
        asyncio.run(service.office.close())
        service._worker.shutdown()


async def _serve(server: uvicorn.Server, started: threading.Event) -> None:
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    started.set()
    await serving


ROUTES = [
    "/api/v1/engines",
    "/api/v1/engines/{key}",
    "/api/v1/verdicts",
    "/api/v1/incidents",
    "/api/v1/incidents/{incident}",
    "/api/v1/report",
    "/healthz",
    "/readyz",
]


def test_the_description_has_these_routes_and_only_get(described):
    """What is asked below is all that there is."""
    assert {path: list(methods) for path, methods in described.raw_schema["paths"].items()} == {path: ["get"] for path in ROUTES}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("route", ROUTES)
def test_every_answer_is_as_described(described, route, mode):
    """Status, content type and body are those of the description; what does not fit is refused; nothing fails inside."""
    operation = described[route]["GET"]
    if mode is GenerationMode.NEGATIVE and not list(operation.iter_parameters()):
        return  # nothing that could be wrong

    @given(operation.as_strategy(generation_mode=mode))
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    def check(case) -> None:
        case.call_and_validate()

    check()
