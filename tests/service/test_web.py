"""Pages and API: who may read, what is said, and that nothing which an engine calls itself becomes anything but text."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.model import Problem
from diagnose.alerts.secret import Secret
from slowrank.config.load import load
from slowrank.service.fleet import _Running
from slowrank.service.plan import prepare
from slowrank.service.service import Service
from slowrank.service.web.app import web
from slowrank.service.web.views import key_of

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
EVIL = '"><script>alert(1)</script>\x1b[31m\u202e{{7*7}}'
NAME = f"prod {EVIL}"
KEY = key_of(NAME)

PAGES = [
    "/",
    f"/engines/{KEY}",
    "/incidents",
    "/metrics",
    "/api/v1/engines",
    f"/api/v1/engines/{KEY}",
    "/api/v1/verdicts",
    "/api/v1/report",
]


def ask(service: Service, *paths: str, base: str = "http://127.0.0.1:9469", method: str = "GET", **headers: str) -> list[httpx.Response]:
    async def play() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(web(service)), base_url=base, headers=headers) as client:
            return [await client.request(method, path) for path in paths]

    return asyncio.run(play())


@pytest.fixture(scope="module")
def told(tmp_path_factory, tell_story):
    """A service that watches one engine of an evil name, on which a fault acted, was found and confirmed."""
    path = tmp_path_factory.mktemp("web") / "c.toml"
    path.write_text('[service]\nincidents = "web.db"\n[[engines]]\nnodes = ["a:1"]\n')
    made = Service(prepare(load(path, {})))
    watch = tell_story(made, NAME, {"zone": "<b>"})
    made.fleet._running[NAME] = _Running(watch, None)  # type: ignore[arg-type]  # nothing runs here
    made._reconciled = True
    yield made
    asyncio.run(made.office.close())
    made._worker.shutdown()


@pytest.fixture
def service(told, monkeypatch):
    """The same, with all that a test may change put back afterwards."""
    for name in ("plan", "_listed", "_reconciled", "_beat"):
        monkeypatch.setattr(told, name, getattr(told, name))
    told._beat = time.monotonic()
    return told


@pytest.mark.parametrize("path", PAGES)
def test_everything_answers(service, path):
    """Each page and each answer of the API is there, guarded by the headers that keep browsers from doing more than showing it."""
    (reply,) = ask(service, path)
    assert reply.status_code == 200
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert "script-src" not in reply.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", f"/engines/{KEY}", "/incidents", f"/api/v1/report?engine={KEY}&format=html"])
def test_hostile_names_stay_text(service, path):
    """No tag, no template, no escape of a terminal and no turning of text gets through from an engine's name or labels."""
    service._listed = (Problem(EVIL, EVIL, EVIL),)
    (reply,) = ask(service, path)
    assert reply.status_code == 200
    assert "<script" not in reply.text
    assert "<b>" not in reply.text.replace("<b>What would tell:</b>", "").replace("<b>Next:</b>", "").replace("<b>&", "") or path != "/"
    assert "\x1b" not in reply.text
    assert "\u202e" not in reply.text
    assert "prod 49" not in reply.text


def test_the_fleet_page_says_what_is_wrong_and_where(service):
    """The cause, the culprit, the engine with a link, the open incident."""
    (reply,) = ask(service, "/")
    assert "host_cpu_starved" in reply.text
    assert "rank 2" in reply.text
    assert f'href="/engines/{KEY}"' in reply.text
    assert re.search(r"<h1>1 incident(, 1 suspected)?</h1>", reply.text)


def test_an_engine_without_pages_is_never_green(service):
    """The story is long past, so its pages are old: grey, whatever the last verdict was."""
    (reply,) = ask(service, "/")
    assert f'<article class="card blind" id="{KEY}">' in reply.text
    (detail,) = ask(service, f"/api/v1/engines/{KEY}")
    assert detail.json()["up"] is False


def test_the_report_is_the_published_one(service):
    """JSON as docs/report.schema.json; HTML with a policy that knows its one style sheet."""
    as_json, as_html = ask(service, "/api/v1/report", f"/api/v1/report?engine={KEY}&format=html")
    jsonschema.validate(as_json.json(), SCHEMA)
    assert as_json.json()["engines"][0]["verdict"]["cause"] == "host_cpu_starved"
    assert "sha256-" in as_html.headers["content-security-policy"]


def test_metrics_are_prometheus_text_with_signals_verdict_and_ourselves(service):
    """What Prometheus' own parser reads: a verdict per engine, culprits, our reading, labels of the targets."""
    (reply,) = ask(service, "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = [s for family in text_string_to_metric_families(reply.text) for s in family.samples]
    by_name = {s.name: s for s in samples}
    said = by_name["slowrank_verdict"].labels
    assert (said["class"], said["cause"]) == ("single-point", "host_cpu_starved")
    assert [s.labels["rank"] for s in samples if s.name == "slowrank_culprit"] == ["2"]
    assert by_name["slowrank_engine_labels"].labels["label_zone"] == "<b>"
    live = {(s.labels["cause"], s.labels["state"]): s.value for s in samples if s.name == "slowrank_incident"}
    assert live["host_cpu_starved", "confirmed"] == 1.0
    assert by_name["slowrank_engine_up"].value == 0.0
    assert not any(s.name.startswith("slowrank_sync_wait") for s in samples), "signals of pages that are old are not shown"


@pytest.mark.parametrize(
    "path",
    [
        "/engines/000000000000",
        "/api/v1/engines/000000000000",
        "/api/v1/verdicts?engine=000000000000",
        "/api/v1/incidents/nope",
        "/incidents/nope",
    ],
)
def test_what_is_not_there_is_404(service, path):
    """With a sentence that says so."""
    (reply,) = ask(service, path)
    assert reply.status_code == 404
    assert reply.json()["detail"].startswith("there is no")


@pytest.mark.parametrize(
    "path", ["/api/v1/engines/..%2f..", "/api/v1/verdicts?limit=0", "/api/v1/incidents?state=lost", "/api/v1/report?format=pdf"]
)
def test_what_makes_no_sense_is_refused(service, path):
    """By validation, not by an accident inside."""
    assert ask(service, f"/api/v1/{path}")[0].status_code in {404, 422}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_nothing_can_be_changed(service, method):
    """Every method but GET is refused before it reaches anything."""
    for reply in ask(service, *PAGES, "/healthz", method=method):
        assert reply.status_code == 405
        assert reply.headers["allow"] == "GET"


def test_a_foreign_host_name_is_refused_without_a_token(service):
    """A page on the internet whose name was made to point at 127.0.0.1 reads nothing."""
    assert ask(service, "/", base="http://evil.example:9469")[0].status_code == 421
    assert ask(service, "/", base="http://[::1]:9469")[0].status_code == 200
    assert ask(service, "/", base="http://localhost")[0].status_code == 200


def test_with_a_token_nothing_is_read_without_it(service):
    """Bearer or the password of Basic; a wrong one, none, or one in another scheme is refused; health checks need none."""
    service.plan = replace(service.plan, token=Secret("s3cret"))
    basic = base64.b64encode(b"any:s3cret").decode()
    wrong = ["", "Bearer", "Bearer s3cre", "Bearer s3cret2", "Basic ????", "Basic " + base64.b64encode(b"s3cret").decode(), "Digest s3cret"]
    for authorization in wrong:
        for reply in ask(service, *PAGES, base="http://slowrank.example", authorization=authorization):
            assert reply.status_code == 401
            assert "s3cret" not in reply.text
    for authorization in ("Bearer s3cret", "bearer  s3cret", f"Basic {basic}"):
        assert {reply.status_code for reply in ask(service, *PAGES, base="http://slowrank.example", authorization=authorization)} == {200}
    assert ask(service, "/healthz", base="http://slowrank.example")[0].status_code == 200


def test_ready_and_alive_are_two_things(service):
    """Ready when each engine was asked once; alive while the loops turn: a hung one makes 503 and says what."""
    assert [r.status_code for r in ask(service, "/healthz", "/readyz")] == [200, 200]
    service._reconciled = False
    assert ask(service, "/readyz")[0].status_code == 503
    service._beat -= 3600.0
    (reply,) = ask(service, "/healthz")
    assert (reply.status_code, "did not turn" in reply.json()["status"]) == (503, True)


def test_no_page_refers_to_anything_elsewhere(service):
    """No address of another host, no script, no inline style: the policy would refuse them, and offline clusters have none."""
    for reply in ask(service, "/", f"/engines/{KEY}", "/incidents"):
        assert "http://" not in reply.text.replace("http://www.w3.org", "").replace("http://a:1", "").replace("http://127", "")
        assert "https://" not in reply.text
        assert "<script" not in reply.text
        assert "style=" not in reply.text
