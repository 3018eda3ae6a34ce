"""The front end of a real cluster books requests when SGLang does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from workload.config import ClusterConfig
from workload.face.loads import SnapshotReader
from workload.face.metrics import TokenizerMetrics
from workload.frontend import Dispatcher
from workload.traffic import Shape
from workload.wire import AsyncChannel, Progress


class Book:
    """What the metrics were told, in order; seconds."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def first_token(self, seconds: float) -> None:
        self.told.append(("first", seconds))

    def finished(self, *, ttft: float, e2e: float, **_: int) -> None:
        self.told += [("ttft", ttft), ("e2e", e2e)]

    def inter_token(self, seconds: float, tokens: int) -> None:
        """Not looked at."""


class Wire:
    def send(self, message: Any) -> None:
        """Nobody is there."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the front end reads, settable."""
    now = [100.0]
    monkeypatch.setattr("workload.frontend.time.monotonic", lambda: now[0])
    return now


def dispatcher(book: Book, path: Path) -> Dispatcher:
    made = Dispatcher(ClusterConfig(ranks=2), SnapshotReader(path / "none", 2), cast(TokenizerMetrics, book))
    made.connect(cast(list[AsyncChannel], [Wire(), Wire()]))
    return made


def test_the_time_to_the_first_token_is_booked_when_it_comes(clock: list[float], tmp_path: Path):
    """Sent at 100 s, first token at 101.5 s, told again after a retraction at 103 s, end at 105 s: one observation, of 1.5 s."""
    book = Book()
    front = dispatcher(book, tmp_path)
    rid = front.send(Shape(100, 0, 9), lambda: None)
    clock[0] = 101.5
    front.heard(Progress([rid], [], []))
    assert book.told == [("first", 1.5)]
    clock[0] = 103.0
    front.heard(Progress([rid], [], []))
    clock[0] = 105.0
    front.heard(Progress([], [rid], []))
    assert book.told == [("first", 1.5), ("ttft", 1.5), ("e2e", 5.0)]


def test_a_request_without_a_first_token_books_none(clock: list[float], tmp_path: Path):
    """It failed: nothing is observed. One whose first token nobody told of has it with its end."""
    book = Book()
    front = dispatcher(book, tmp_path)
    lost, late = (front.send(Shape(100, 0, 9), lambda: None) for _ in range(2))
    clock[0] = 102.0
    front.heard(Progress([], [late], [], [lost]))
    assert book.told == [("first", 2.0), ("ttft", 2.0), ("e2e", 2.0)]
