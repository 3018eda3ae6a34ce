"""Ranks are compared only within one role of one engine: prefill and decode pages never meet in one window."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector import signals
from collector.intake import Intake
from collector.model import Page, Source, Window

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
FULL = (CAPTURES / "v1-loads.json").read_text()
P, D = "http://p:30000", "http://d:30000"


def metrics(role: str, name: str, arrived: float, node: str) -> Page:
    body = (CAPTURES / name).read_bytes().replace(b'engine_type="unified"', f'engine_type="{role}"'.encode())
    return Page("p:30000,d:30000", node, Source.SGLANG_METRICS, arrived, 0.05, 200, "", body)


def loads(role: str, arrived: float, node: str) -> Page:
    body = json.dumps(json.loads(FULL)["full"]["body"]).replace('"mode": "null"', f'"mode": "{role}"')
    return Page("p:30000,d:30000", node, Source.SGLANG_LOADS, arrived, 0.05, 200, "", body.encode())


def both(first: str, second: str) -> list[Page]:
    names = ("tp8-dp8-ep8-t1.prom", "tp8-dp8-ep8-t2.prom")
    pages = [metrics(role, name, 1000.0 + 10 * k + later, node) for k, name in enumerate(names)
             for role, node, later in (("prefill", P, 0.0), ("decode", D, 0.2))]  # fmt: skip
    return [page for page in pages if page.node in (first, second)]


def window(pages: list[Page]) -> Window:
    intake = Intake()
    for page in sorted(pages, key=lambda page: page.arrived):
        intake.feed(page)
    return intake.window("p:30000,d:30000")


def said(of: Window) -> str:
    return "\n".join(map(str, of.problems))


def test_a_comma_between_a_prefill_and_a_decode_server_is_told_and_mixes_nothing() -> None:
    """The first stated role is the engine's; the other server's ranks are left out, with the two targets to give instead."""
    alone, joined = window(both(P, P)), window(both(P, D))
    assert joined.engine.facts.role == "prefill"
    assert "http://d:30000 is a decode server, http://p:30000 a prefill one" in said(joined)
    assert "both report" not in said(joined)
    for name in (signals.STEPS_ACTIVE, signals.ATTENTION_PAIRS):
        assert joined.mean(name) == pytest.approx(alone.mean(name))


def test_node_0_says_what_the_engine_is_whoever_answered_first() -> None:
    """The load pages, which node 0 alone is asked for, come after the other server's metrics: what those said is put aside."""
    pages = [metrics("prefill", "tp8-dp8-ep8-t1.prom", 1000.0, P), *(loads("decode", 1001.0 + k, D) for k in range(8))]
    found = window([*pages, metrics("prefill", "tp8-dp8-ep8-t2.prom", 1010.0, P)])
    assert found.engine.facts.role == "decode"
    assert found.ranks == (0, 1)
    assert not found.has(signals.STEPS_ACTIVE)
    assert found.has(signals.RUNNING)
    assert "http://p:30000 is a prefill server, http://d:30000 a decode one" in said(found)


def test_an_engine_that_changes_its_role_begins_anew() -> None:
    """No window spans the change, and the change is told with its time's next step."""
    pages = [loads("prefill", 1000.0 + k, P) for k in range(5)] + [loads("decode", 1005.0 + k, P) for k in range(5)]
    found = window(pages)
    assert found.engine.facts.role == "decode"
    assert found.start >= 1004.0
    assert "was a prefill server and is a decode one" in said(found)


def test_nodes_of_one_role_are_one_engine() -> None:
    """Two nodes that both decode are what the comma is for."""
    pages = [metrics("decode", name, 1000.0 + 10 * k, P) for k, name in enumerate(("tp8-dp8-ep8-t1.prom", "tp8-dp8-ep8-t2.prom"))]
    assert "are two engines without a common clock" not in said(window([*pages, *(loads("decode", 1000.0 + k, D) for k in range(11))]))
