"""How many drafted tokens a verify step accepts, drawn per rank."""

from __future__ import annotations

import random

from workload.scheduling.settings import Speculation


class Acceptance:
    """One rank's draft model. `factor` multiplies the chance of each draft: below 1 the rank's requests suit the draft less well."""

    def __init__(self, speculation: Speculation, seed: int) -> None:
        self.steps = speculation.steps
        self.factor = 1.0
        self._accept = speculation.accept
        self._rng = random.Random(seed)

    @property
    def width(self) -> int:
        """Tokens that the target verifies per row: the drafts and the one before them."""
        return self.steps + 1

    def draw(self) -> int:
        """Accepted drafts of one row, 0 to `steps`: a chain ends with its first refusal."""
        chance = min(1.0, self._accept * self.factor)
        accepted = 0
        while accepted < self.steps and self._rng.random() < chance:
            accepted += 1
        return accepted
