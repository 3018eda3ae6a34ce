"""TARGET as a person types it."""

from __future__ import annotations

import pytest

from collector.errors import ConfigError
from collector.targets import Target, parse_target, with_machines


@pytest.mark.parametrize(
    ("text", "engine", "nodes"),
    [
        ("host:30000", "host:30000", ("http://host:30000",)),
        ("http://host:30000", "http://host:30000", ("http://host:30000",)),
        ("http://host:30000/", "http://host:30000/", ("http://host:30000",)),
        ("https://engine.example.com", "https://engine.example.com", ("https://engine.example.com",)),
        ("https://gw/engines/7/", "https://gw/engines/7/", ("https://gw/engines/7",)),
        ("10.0.0.1:80", "10.0.0.1:80", ("http://10.0.0.1:80",)),
        ("[::1]:30000", "[::1]:30000", ("http://[::1]:30000",)),
        ("HTTP://Host:1", "HTTP://Host:1", ("http://host:1",)),
        ("a:1, b:1", "a:1,b:1", ("http://a:1", "http://b:1")),
        ("http://a:1,b:2,c:3", "http://a:1,b:2,c:3", ("http://a:1", "http://b:2", "http://c:3")),
    ],
)
def test_what_is_understood(text: str, engine: str, nodes: tuple[str, ...]) -> None:
    """The id is what was typed, less the spaces; nodes are base URLs, node 0 first."""
    assert parse_target(text) == Target(engine, nodes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty target"),
        ("a:1,", "empty target"),
        (",a:1", "empty target"),
        ("host", "no port"),
        (":30000", "no host"),
        ("http://", "no host"),
        ("host:0", "no port"),
        ("host:x", "no host and port"),
        ("host:99999", "no host and port"),
        ("[::1:30000", "no host and port"),
        ("ftp://host:1", "no scheme"),
        ("unix:///run/x", "no scheme"),
        ("ho st:1", "spaces"),
        ("host:1\x07", "control characters"),
        ("http://host:1/metrics", "one page"),
        ("http://host:1/v1/loads/", "one page"),
        ("a:1,a:1", "twice"),
        ("a:1,http://A:1/", "twice"),
    ],
)
def test_what_is_refused_comes_with_an_example(text: str, words: str) -> None:
    """What was seen, and what it should look like."""
    with pytest.raises(ConfigError, match=words) as caught:
        parse_target(text)
    assert "host:30000" in str(caught.value)


@pytest.mark.parametrize("text", ["http://me:hunter2@host:1", "me:hunter2@host:1", "host:1/?key=hunter2", "http://host:1/#hunter2"])
def test_what_may_hold_a_secret_is_not_repeated(text: str) -> None:
    """A password or a key in a URL is refused without being shown."""
    with pytest.raises(ConfigError) as caught:
        parse_target(text)
    assert "hunter2" not in str(caught.value)


def test_the_key_is_not_shown() -> None:
    """Neither in a repr nor when it is refused."""
    assert "hunter2" not in repr(parse_target("a:1", "hunter2"))
    for key in ("", "hunter2 x", "hunter2\n", "hünter2"):
        with pytest.raises(ConfigError) as caught:
            parse_target("a:1", key)
        assert "nter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("node0:9400", "http://node0:9400/metrics"),
        ("http://Node0:9400/", "http://node0:9400/metrics"),
        ("https://gw/dcgm/7/metrics", "https://gw/dcgm/7/metrics"),
        ("http://127.0.0.1:1/dcgm/metrics", "http://127.0.0.1:1/dcgm/metrics"),
    ],
)
def test_a_page_of_cards_is_named_by_its_host_and_port_or_in_full(text: str, page: str) -> None:
    """dcgm-exporter's own path is /metrics; behind a proxy it may be any."""
    assert with_machines(parse_target("host:30000"), [text, text]).hardware == (page,)


@pytest.mark.parametrize(
    "text", ["", "node0", "ftp://node0:9400", "node0:0", "http://user:secret@node0:9400", "node0:9400?key=secret", "no de:1"]
)
def test_what_is_no_page_of_cards_is_refused_without_repeating_secrets(text: str) -> None:
    """With an example."""
    with pytest.raises(ConfigError, match="node0:9400") as caught:
        with_machines(parse_target("host:30000"), [text])
    assert "secret" not in str(caught.value)
