"""Which role an engine plays: prefill and decode servers share no clock, so what they say never meets in one window. Pure."""

from __future__ import annotations

from collector.errors import SourceError
from collector.model import Page, Source

FIRST_NODE_ONLY = frozenset({Source.SGLANG_LOADS, Source.SGLANG_SERVER_INFO})
"""Pages that are asked of node 0 alone: whoever gives them is the node that says what the engine is."""


class Roles:
    """The roles that the nodes of one engine state. `role` is the engine's: node 0's, or the first that was stated until node 0 speaks."""

    def __init__(self) -> None:
        self.role: str | None = None
        self._lead: str | None = None
        self._of: dict[str, str] = {}

    def admit(self, page: Page, role: str | None) -> bool:
        """Take note of the role that a page states, None when it states none. True when the engine's role is now another one, so that
        what was read before belongs to something else. Raises SourceError for a page of a node whose role is not the engine's.
        """
        if role is not None:
            self._of[page.node] = role
        mine = self._of.get(page.node)
        if mine is None:
            return False
        if self._lead is None or page.source in FIRST_NODE_ONLY:
            self._lead = page.node
        if page.node == self._lead:
            turned = self.role not in (None, mine)
            self.role = mine
            return turned
        if mine != self.role:
            raise SourceError(
                f"{page.node} is a {mine} server, {self._lead} a {self.role} one: they are two engines without a common clock, and its"
                f" ranks were left out; give each as a target of its own, with a space between them and not a comma"
            )
        return False
