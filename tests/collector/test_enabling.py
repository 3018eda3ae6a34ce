"""What vLLM gives and how, and that what is said of it in PromQL exists on its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector import enabling, promql, signals
from collector.intake import Intake
from collector.model import Clock, Page, Source

PAGE = Path(__file__).parents[1] / "captures" / "vllm-0.32.0" / "slowmoe-1.prom"
EXPRESSIONS = sorted(name for name in vars(promql) if name.startswith("VLLM_"))


@pytest.mark.parametrize("signal", sorted(signals.CATALOGUE))
def test_a_missing_signal_on_vllm_is_never_answered_with_sglangs_flags(signal: str) -> None:
    """Each has words of its own unless its source is not the engine."""
    if not signals.CATALOGUE[signal].optional:
        assert "SGLang" not in enabling.enable(signal, "vllm")
        assert enabling.enable(signal, "vllm")
    assert enabling.enable(signal, "sglang") == signals.CATALOGUE[signal].enable


def test_what_is_said_to_be_given_is_on_a_real_page() -> None:
    """The signals of a real pair of pages, with a known clock, are those that the table says vLLM gives."""
    intake = Intake(clock=Clock.FORWARD)
    for k, body in enumerate((PAGE.read_bytes(), (PAGE.parent / "slowmoe-2.prom").read_bytes())):
        intake.feed(Page("h:1", "http://h:1", Source.VLLM_METRICS, 1000.0 + 18 * k, 0.1, 200, "", body))
    given = {name for name in signals.CATALOGUE if enabling.given(name, "vllm") and not signals.CATALOGUE[name].optional}
    assert set(intake.window("h:1").values) == given


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_name_series_and_labels_of_a_real_page(name: str) -> None:
    """Every metric, and every value of a label, stands on the captured page."""
    page, expression = PAGE.read_text(), getattr(promql, name)
    metrics = re.findall(r"vllm:\w+", expression)
    assert metrics
    assert all(re.search(rf"^{metric}\{{", page, flags=re.MULTILINE) for metric in metrics)
    assert all(label in page for label in re.findall(r'\w+="\w+"', expression))


def test_sglangs_expressions_are_never_shown_on_vllm() -> None:
    """Each is translated or left out."""
    ours = [value for name, value in vars(promql).items() if name.isupper() and isinstance(value, str)]
    assert all("sglang" not in promql.on("vllm", expression) for expression in ours)
    assert all(promql.on("sglang", expression) == expression for expression in ours)
