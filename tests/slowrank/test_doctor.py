"""The doctor says what is there, what is not, which flag turns it on and which rules wait for it."""

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from collector import signals
from collector.model import Engine, Problem, Window
from collector.signals import CATALOGUE, Scope
from diagnose.model import Class, Healthy, Severity
from diagnose.rules import Rule
from slowrank.doctor import examine, render, to_json


def _rule(name: str, *needs: str) -> Rule:
    return Rule(name, Class.LOAD, Severity.NOTE, "", needs, lambda case, limits: Healthy(""), f"About {name}.")


RULES = MappingProxyType(
    {"hot": _rule("hot", signals.EXPERT_LOAD), "late": _rule("late", signals.SYNC_WAIT, signals.RECV_WAIT), "calm": _rule("calm")}
)


def _window(*without: str, **changes: Any) -> Window:
    values = {s.name: np.ones((1 if s.scope is Scope.ENGINE else 2, 3)) for s in CATALOGUE.values() if s.name not in without}
    values.update(changes.pop("values", {}))
    return Window(Engine("host:1", "sglang"), np.arange(4.0), (0, 1), values, 3, **changes)


def test_everything_there_lets_every_rule_answer() -> None:
    """A full window misses nothing, and says so in one line."""
    checkup = examine(_window(), RULES)
    assert checkup.complete
    assert not checkup.blocked
    first = render(checkup, 100).splitlines()[0]
    assert first == f"host:1 (sglang): {len(CATALOGUE)} of {len(CATALOGUE)} signals on all 2 ranks; every rule can answer"


def test_a_missing_signal_names_its_flag_what_it_adds_and_whom_it_blocks() -> None:
    """Each missing signal stands under the exact flag that turns it on."""
    checkup = examine(_window(signals.EXPERT_LOAD, signals.SYNC_WAIT), RULES)
    assert not checkup.complete
    assert checkup.blocked == {"hot": (signals.EXPERT_LOAD,), "late": (signals.SYNC_WAIT,)}
    text = render(checkup, 400)
    for name in (signals.EXPERT_LOAD, signals.SYNC_WAIT):
        assert f"To get 1 more, {CATALOGUE[name].enable}:" in text
        assert CATALOGUE[name].adds in text
    assert "needed by: hot" in text
    assert "Rules that cannot answer in full\n  hot, late\n" in text


def test_signals_of_one_flag_stand_together() -> None:
    """One restart with one flag is one paragraph."""
    text = render(examine(_window(signals.RECV_WAIT, signals.SCHEDULER_WORK, signals.RETRACTED), RULES), 100)
    assert text.count("To get ") == 1
    assert "To get 3 more, start SGLang with --enable-metrics:" in text


def test_a_signal_of_some_ranks_is_not_all_there() -> None:
    """A rank whose environment lacks the variable is found and named."""
    half = np.array([[1.0, 1.0, 1.0], [np.nan, np.nan, np.nan]])
    checkup = examine(_window(values={signals.SYNC_WAIT: half}), RULES)
    assert not checkup.complete
    assert checkup.blocked == {"late": (signals.SYNC_WAIT,)}
    assert "sync_wait is missing on ranks 1 only" in render(checkup, 200)


def test_all_nan_is_missing() -> None:
    """A family that is on the page but never has a value is not there."""
    assert not examine(_window(values={signals.RUNNING: np.full((2, 3), np.nan)}), RULES).complete


def test_the_json_form_holds_the_same() -> None:
    """Programs get every signal with its state, flag and rules."""
    document = to_json([examine(_window(signals.SYNC_WAIT, problems=(Problem("x", "y"),)), RULES)])
    (engine,) = document["engines"]
    assert document["schema"] == "slowrank.doctor/1"
    assert [s["signal"] for s in engine["signals"]] == list(CATALOGUE)
    lost = next(s for s in engine["signals"] if s["signal"] == signals.SYNC_WAIT)
    assert (lost["there"], lost["missing_on_ranks"], lost["rules"]) == (False, [0, 1], ["late"])
    assert engine["complete"] is False
    assert engine["blocked_rules"] == {"late": ["sync_wait"]}
    assert engine["problems"] == [{"where": "x", "what": "y", "then": ""}]


def test_hostile_names_are_made_harmless() -> None:
    """An engine id or a problem cannot drive the terminal."""
    window = Window(Engine("e\x1b[2J", "k\x1b"), np.arange(2.0), (0,), {}, 1, (Problem("p\x1b]0;x\x07", "w"),))
    assert "\x1b" not in render(examine(window, RULES), 100)


@pytest.mark.parametrize("width", [60, 100])
def test_prose_keeps_to_the_width(width: int) -> None:
    """Only flags and variables, which must be pasted whole, may pass the width."""
    for line in render(examine(_window(signals.SYNC_WAIT, signals.EXPERT_LOAD), RULES), width).splitlines():
        assert len(line) <= width or line.startswith("host:1") or "_" in line or "--" in line


def test_what_cards_and_processes_would_add_is_offered_and_not_missed() -> None:
    """An engine that tells all of itself is complete without a page of cards; the option, and the lines for the exporter, are named."""
    optional = [s.name for s in CATALOGUE.values() if s.optional]
    rules = {**RULES, "cold": _rule("cold", signals.CARD_CLOCK, signals.CARD_THERMAL)}
    checkup = examine(_window(*optional), rules)
    assert checkup.complete
    assert not checkup.blocked
    text = render(checkup, 400)
    assert "--hardware URL" in text
    assert "--procfs" in text
    assert "DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, Current clock event reasons (bitmask)." in text


def test_a_page_of_cards_that_lacks_a_field_blocks_its_rules() -> None:
    """The default counters have clocks and no reasons: the rule on both cannot answer in full, and the line to add is named."""
    rules = {**RULES, "cold": _rule("cold", signals.CARD_CLOCK, signals.CARD_THERMAL)}
    checkup = examine(_window(signals.CARD_THERMAL), rules)
    assert checkup.complete
    assert checkup.blocked == {"cold": (signals.CARD_THERMAL,)}
