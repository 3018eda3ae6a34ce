"""What the tests of dashboards and rules share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dashboards import build

VALUES = {
    "$__rate_interval": "1m",
    "$__interval": "15s",
    "$__range": "1h",
    "$engine": "http://engine-0:30000",
    "$rank": "0",
}
"""What Grafana puts for its variables. `$source` depends on the page that is asked."""


@dataclass(frozen=True)
class Asked:
    """One panel's query, of one dashboard."""

    page: str
    panel: str
    expr: str

    def with_values(self, **values: str) -> str:
        """The expression as Grafana sends it."""
        filled = self.expr
        for name, value in {**VALUES, **values}.items():
            filled = filled.replace(name if name.startswith("$") else f"${name}", value)
        assert not re.search(r"\$\w", filled), filled
        return filled


def _panels(page: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels that show something."""
    return [panel for panel in page["panels"] if panel["type"] != "row"]


@pytest.fixture(scope="session")
def pages() -> dict[str, dict[str, Any]]:
    """All dashboards by file name."""
    return build.pages()


@pytest.fixture(scope="session")
def panels() -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """panels(page): all that show something."""
    return _panels


@pytest.fixture(scope="session")
def values() -> dict[str, str]:
    """What Grafana's variables are in tests."""
    return VALUES


@pytest.fixture(scope="session")
def asked(pages) -> list[Asked]:
    """Every query of every panel, and of every annotation."""
    found = [Asked(name, panel["title"], t["expr"]) for name, page in pages.items() for panel in _panels(page) for t in panel["targets"]]
    return found + [Asked(name, a["name"], a["expr"]) for name, page in pages.items() for a in page["annotations"]["list"]]
