"""The HTTP server of vLLM 0.32, as a scraper finds it. There is no `/v1/loads`."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Response


def create_app(*, version: str, page: Callable[[], bytes]) -> FastAPI:
    """`page` makes the text of `/metrics`.

    `/health` and `/ping` do not look at progress: vLLM answers 200 while its engine process lives, hung or not, and this process
    ends with the first rank that dies. `/load` counts only with --enable-server-load-tracking, which is not set.
    """
    app = FastAPI()

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/health")
    @app.get("/ping")
    @app.post("/ping")
    async def health() -> Response:
        return Response(status_code=200)

    @app.get("/version")
    async def tell_version() -> dict[str, str]:
        return {"version": version}

    @app.get("/load")
    async def load() -> dict[str, int]:
        return {"server_load": 0}

    return app
