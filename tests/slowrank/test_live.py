"""Live collection: every page is handed on, silence is told early, the first Ctrl-C keeps what there is."""

import os
import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from collector.errors import CaptureError
from collector.model import Page, Source
from collector.scrape import parse_target
from slowrank.exits import UnreachableError
from slowrank.live import Contact, collect


def _page(engine: str, error: str | None = None) -> Page:
    return Page(engine, f"http://{engine}", Source.SGLANG_LOADS, 1.0, 0.1, 0 if error else 200, "", b"", error)


@pytest.fixture
def server() -> Iterator[str]:
    """host:port of a server that answers every path with a JSON object."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_arguments: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_hopeless_only_when_every_engine_failed_and_none_answered() -> None:
    """An engine of which nothing is known yet may still answer; one that answered once is reached."""
    contact = Contact(("a", "b"))
    contact.note(_page("a", "refused"))
    assert not contact.hopeless
    contact.note(_page("b", "refused too"))
    assert contact.hopeless
    contact.note(_page("b"))
    assert not contact.hopeless
    assert contact.unreached == {"a": "refused"}


def test_the_first_reason_stays() -> None:
    """What an engine's loads page says first is not hidden by the failures of its other pages."""
    contact = Contact(("a",))
    contact.note(_page("a", "first"))
    contact.note(_page("a", "second"))
    assert contact.unreached == {"a": "first"}


def test_pages_are_handed_on_and_the_unreached_are_named(server: str) -> None:
    """One engine that answers is read to the end; the other one is in the outcome with its reason."""
    pages: list[Page] = []
    done = collect([parse_target(server), parse_target("127.0.0.1:9")], 0.5, pages.append)
    assert {p.engine for p in pages if p.error is None} == {server}
    assert list(done.unreached) == ["127.0.0.1:9"]
    assert "nothing listens there" in done.unreached["127.0.0.1:9"]
    assert not done.interrupted


def test_nobody_ends_with_the_reason() -> None:
    """A collection that reached nobody is an error, not an empty result."""
    with pytest.raises(UnreachableError, match=r"no target gives a usable page: http://127\.0\.0\.1:9/v1/loads: nothing listens"):
        collect([parse_target("127.0.0.1:9")], 3600.0, lambda page: None)


def test_nobody_is_told_before_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience ends long before a long collection would; a test that waited for the hour would not return."""
    monkeypatch.setattr("slowrank.live.PATIENCE", 0.2)
    with pytest.raises(UnreachableError):
        collect([parse_target("127.0.0.1:9")], 3600.0, lambda page: None)


def test_the_first_interrupt_keeps_what_was_read(server: str) -> None:
    """Ctrl-C ends the reading early, without an exception, and says so."""
    pages: list[Page] = []

    def on_page(page: Page) -> None:
        pages.append(page)
        if len(pages) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    done = collect([parse_target(server)], 3600.0, on_page)
    assert done.interrupted
    assert len(pages) >= 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("error", [CaptureError("full disk"), OSError(28, "full disk")])
def test_what_keeping_a_page_raises_is_raised(server: str, error: Exception) -> None:
    """A full disk is not swallowed by the loop; an error raised on purpose comes out as itself."""

    def on_page(_page: Page) -> None:
        raise error

    with pytest.raises(CaptureError if isinstance(error, CaptureError) else ExceptionGroup) as raised:
        collect([parse_target(server)], 3600.0, on_page)
    assert "full disk" in str(raised.value) or raised.group_contains(OSError, match="full disk")
