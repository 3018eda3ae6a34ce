"""Colours that all panels share: Okabe and Ito's, which colour-blind people tell apart. Each state also has its word."""

from __future__ import annotations

from diagnose.model import Class

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILLION, PURPLE, GREY = (
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#8a8f98",
)  # fmt: skip

CLASSES: dict[Class, tuple[int, str]] = {
    Class.HEALTHY: (1, GREEN),
    Class.INSUFFICIENT: (2, GREY),
    Class.OUTSIDE: (3, PURPLE),
    Class.STRUCTURAL: (4, BLUE),
    Class.LOAD: (5, ORANGE),
    Class.SINGLE_POINT: (6, VERMILLION),
}
"""A class's number in a state timeline, which draws numbers, and its colour. Grey is never green."""

UNREAD = ("not read", 0, YELLOW)
"""The word, number and colour of an engine from which no usable page comes: its last verdict is no verdict any more."""

SCHEME = "Viridis"
"""Of heat maps: changes in lightness too, so that it reads in grey. Grafana turns it round in its light theme, so that texts say high and
low, never bright and dark."""

SUBJECT, BESIDE, THIRD = ORANGE, SKY, GREY
"""Lines that a page names: what is looked at, what it is compared with, and a third."""

WORTH = 0.2
"""Share of a step where scales of waits and lateness end: four times the loss that is a threshold. Above it is late beyond doubt."""
