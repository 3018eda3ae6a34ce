"""`slowrank diagnose A B C`: engines of one model are each other's measure."""

from __future__ import annotations

import json
from pathlib import Path

from collector.intake import Intake
from collector.model import Page, Source
from slowrank.diagnosing import conclude
from slowrank.targets import windows

CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"
LOADS = json.dumps(json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]).encode()


def notes(*engines: str) -> list[str]:
    intake = Intake()
    for engine in engines:
        node = f"http://{engine}"
        for k, name in enumerate(("tp8-dp8-ep8-t1.prom", "tp8-dp8-ep8-t2.prom")):
            body = (CAPTURES / name).read_bytes()
            intake.feed(Page(engine, node, Source.SGLANG_LOADS, 1000.0 + 9 * k, 0.01, 200, "", LOADS))
            intake.feed(Page(engine, node, Source.SGLANG_METRICS, 1000.0 + 10 * k, 0.1, 200, "", body))
    return [" ".join(diagnosis.notes) for diagnosis in conclude(windows(intake), None)]


def test_three_engines_of_one_model_are_compared() -> None:
    """Each of three is measured by the two others; one alone by nobody; two by no majority."""
    assert ["the measure is 2 twins" in text for text in notes("a:1", "b:1", "c:1")] == [True] * 3
    assert ["no majority" in text for text in notes("a:1", "b:1")] == [True] * 2
    assert "would not be seen" in notes("a:1")[0]
