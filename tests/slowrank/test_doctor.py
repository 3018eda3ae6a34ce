"""The doctor says what is there, what is not, which flag turns it on and which rules wait for it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from collector import signals
from collector.intake import Intake
from collector.model import Engine, Facts, Page, Problem, Source, Window
from collector.signals import CATALOGUE, Scope
from diagnose.model import Class, Healthy, NoData, Severity
from diagnose.rules import Rule, load
from slowrank.doctor import Checkup, State, examine
from slowrank.doctor_report import render, to_json


def _rule(name: str, *needs: str) -> Rule:
    return Rule(name, Class.LOAD, Severity.NOTE, "", needs, lambda case, limits: Healthy(""), f"About {name}.")


OURS = tuple(signal for signal in CATALOGUE.values() if not signal.only)
"""What an SGLang engine can have."""

RULES = MappingProxyType(
    {"hot": _rule("hot", signals.EXPERT_LOAD), "late": _rule("late", signals.SYNC_WAIT, signals.RECV_WAIT), "calm": _rule("calm")}
)


def _weaker(checkup: Checkup) -> dict[str, tuple[str, ...]]:
    return {each.rule.id: each.lacks for each in checkup.weaker}


def _mute(name: str, *needs: str) -> Rule:
    """A rule that cannot answer without any of its needs."""
    return Rule(name, Class.LOAD, Severity.NOTE, "", needs, lambda case, limits: NoData(case.window.missing(*needs)), f"About {name}.")


def _state(checkup: Checkup, name: str) -> State:
    return next(s.state for s in checkup.sightings if s.signal.name == name)


def _window(*without: str, **changes: Any) -> Window:
    values = {s.name: np.ones((1 if s.scope is Scope.ENGINE else 2, 3)) for s in CATALOGUE.values() if s.name not in without}
    values.update(changes.pop("values", {}))
    return Window(Engine("host:1", "sglang"), np.arange(4.0), (0, 1), values, 3, **changes)


def test_everything_there_lets_every_rule_answer() -> None:
    """A full window misses nothing, and says so in one line."""
    checkup = examine(_window(), RULES)
    assert checkup.complete
    assert (checkup.impossible, checkup.weaker) == ((), ())
    first = render(checkup, 100).splitlines()[0]
    assert first == f"host:1 (sglang): {len(OURS)} of {len(OURS)} signals on all 2 ranks; every rule can answer"


def test_what_only_the_other_engine_has_is_not_missed() -> None:
    """Times of single requests are vLLM's: there they are asked for, and with SGLang nobody is told to turn them on."""
    name = signals.REQUEST_QUEUE_TIME
    window = _window(name)
    assert name not in {s.signal.name for s in examine(window, RULES).sightings}
    vllm = examine(replace(window, engine=Engine("host:1", "vllm")), RULES)
    assert _state(vllm, name) is State.UNSEEN


def test_a_missing_signal_names_its_flag_what_it_adds_and_whom_it_blocks() -> None:
    """Each missing signal stands under the exact flag that turns it on."""
    checkup = examine(_window(signals.EXPERT_LOAD, signals.SYNC_WAIT), RULES)
    assert not checkup.complete
    assert _weaker(checkup) == {"hot": (signals.EXPERT_LOAD,), "late": (signals.SYNC_WAIT,)}
    text = render(checkup, 400)
    for name in (signals.EXPERT_LOAD, signals.SYNC_WAIT):
        assert f"To get 1 more, {CATALOGUE[name].enable}:" in text
        assert CATALOGUE[name].adds in text
    assert "needed by: hot" in text
    assert "Verdicts possible but weaker\n  - hot (load): without expert_load\n  - late (load): without sync_wait\n" in text


def test_signals_of_one_flag_stand_together() -> None:
    """One restart with one flag is one paragraph."""
    text = render(examine(_window(signals.RECV_WAIT, signals.SCHEDULER_CPU, signals.RETRACTED), RULES), 100)
    assert text.count("To get ") == 1
    assert "To get 3 more, start SGLang with --enable-metrics:" in text


def test_a_signal_of_some_ranks_is_not_all_there() -> None:
    """A rank whose environment lacks the variable is found and named."""
    half = np.array([[1.0, 1.0, 1.0], [np.nan, np.nan, np.nan]])
    checkup = examine(_window(values={signals.SYNC_WAIT: half}), RULES)
    assert not checkup.complete
    assert _weaker(checkup) == {"late": (signals.SYNC_WAIT,)}
    assert "sync_wait is missing on ranks 1 only" in render(checkup, 200)


def test_all_nan_is_missing() -> None:
    """A family that is on the page but never has a value is not there."""
    assert not examine(_window(values={signals.RUNNING: np.full((2, 3), np.nan)}), RULES).complete


def test_the_json_form_holds_the_same() -> None:
    """Programs get every signal with its state, flag and rules."""
    document = to_json([examine(_window(signals.SYNC_WAIT, problems=(Problem("x", "y"),)), RULES)])
    (engine,) = document["engines"]
    assert document["schema"] == "slowrank.doctor/1"
    assert [s["signal"] for s in engine["signals"]] == [signal.name for signal in OURS]
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


def test_verdicts_are_grouped_by_the_one_change_that_makes_most_possible() -> None:
    """Two rules wait for --enable-metrics alone, one for a variable more: that one change brings all three, and stands first."""
    rules = {
        "late": _mute("late", signals.SYNC_WAIT, signals.RECV_WAIT),
        "full": _mute("full", signals.RETRACTED),
        "lost": _mute("lost", signals.GRAPH_STEPS),
    }
    gone = (signals.SYNC_WAIT, signals.RECV_WAIT, signals.RETRACTED, signals.GRAPH_STEPS)
    checkup = examine(_window(*gone), rules)
    assert checkup.weaker == ()
    first, second = checkup.impossible
    assert first.changes == (CATALOGUE[signals.SYNC_WAIT].enable,)
    assert [each.rule.id for each in first.blocked] == ["late"]
    assert second.changes == (CATALOGUE[signals.RETRACTED].enable,)
    assert [each.rule.id for each in second.blocked] == ["full", "lost"]
    text = render(checkup, 400)
    assert "3 verdicts impossible today, 0 weaker" in text
    assert f"  1. {CATALOGUE[signals.SYNC_WAIT].enable}:\n     - late (load): About late; lacks sync_wait, recv_wait\n" in text


def test_a_verdict_that_waits_for_two_changes_says_both() -> None:
    """Expert load and waits are turned on by different flags: neither alone is enough."""
    checkup = examine(_window(signals.EXPERT_LOAD, signals.SYNC_WAIT), {"both": _mute("both", signals.EXPERT_LOAD, signals.SYNC_WAIT)})
    (remedy,) = checkup.impossible
    assert set(remedy.changes) == {CATALOGUE[signals.EXPERT_LOAD].enable, CATALOGUE[signals.SYNC_WAIT].enable}
    assert "; and start SGLang" in render(checkup, 400)


def test_a_frozen_signal_is_told_from_one_that_is_not_there() -> None:
    """A counter that stands still on rank 1 was not turned on there; what is on no page was not seen."""
    half = np.array([[1.0, 1.0, 1.0], [np.nan, np.nan, np.nan]])
    window = _window(signals.EXPERT_LOAD, signals.FORWARD_TIME, values={signals.SYNC_WAIT: half})
    frozen = {signals.SYNC_WAIT: (1,), signals.FORWARD_TIME: (0, 1)}
    checkup = examine(replace(window, frozen=frozen), RULES)
    assert _state(checkup, signals.SYNC_WAIT) is State.PARTLY
    assert _state(checkup, signals.FORWARD_TIME) is State.FROZEN
    assert _state(checkup, signals.EXPERT_LOAD) is State.UNSEEN
    text = render(checkup, 400)
    assert "- sync_wait is frozen on ranks 1 (" in text
    assert "- forward_time is frozen (" in text
    assert "Frozen: the page holds the number" in text
    lost = {s["signal"]: (s["state"], s["frozen_on_ranks"]) for s in to_json([checkup])["engines"][0]["signals"]}
    assert lost[signals.FORWARD_TIME] == ("frozen", [0, 1])
    assert lost[signals.EXPERT_LOAD] == ("not seen", [])


def test_a_prefill_server_is_not_asked_for_decode_steps() -> None:
    """What it has no reason to show is neither missing nor in a rule's way."""
    window = _window(signals.DECODE_STEPS, signals.ACCEPT_LENGTH)
    prefill = replace(window, engine=replace(window.engine, facts=Facts(role="prefill")))
    checkup = examine(prefill, {"steps": _mute("steps", signals.DECODE_STEPS)})
    assert checkup.complete
    assert (checkup.impossible, checkup.weaker) == ((), ())
    assert _state(checkup, signals.DECODE_STEPS) is State.BESIDE
    assert "Do not apply to an engine of this role\n  decode_steps, accept_length\n" in render(checkup, 200)
    assert not examine(window, {}).complete


CAPTURES = Path(__file__).parents[1] / "captures" / "sglang-0.5.23"


def _captured(*, dp_attention: bool = True, metrics: bool = True) -> Checkup:
    """What the doctor says of the captured engine of 8 ranks, as it is, without the variable of DP attention (its counters exist and stay
    0), or without --enable-metrics. The load pages are the captured rank, on all ranks, with 50 steps of 8 requests a second."""
    intake = Intake()
    loads = json.loads((CAPTURES / "v1-loads.json").read_text())["full"]["body"]
    n, b, t, bb, bt, g = loads["loads"][0]["decode_moments"]
    for k in range(11):
        moments = [n + 50 * k, b + 400 * k, t + 1e6 * k, bb, bt, g + 400 * k]
        entries = [{**loads["loads"][0], "dp_rank": rank, "decode_moments": moments} for rank in range(8)]
        body = json.dumps({**loads, "loads": entries}).encode()
        intake.feed(Page("h:1", "http://h:1", Source.SGLANG_LOADS, 1000.0 + k, 0.01, 200, "", body))
    for k, name in enumerate(("tp8-dp8-ep8-t1.prom", "tp8-dp8-ep8-t2.prom") if metrics else ()):
        body = (CAPTURES / name).read_bytes()
        if not dp_attention:
            body = re.sub(rb"(?m)^(sglang:dp_attention_[^ ]*) .*$", rb"\1 0.0", body)
        intake.feed(Page("h:1", "http://h:1", Source.SGLANG_METRICS, 1000.0 + 10 * k, 0.1, 200, "", body))
    return examine(intake.window("h:1"), load())


def _impossible(checkup: Checkup) -> dict[str, tuple[str, ...]]:
    return {each.rule.id: remedy.changes for remedy in checkup.impossible for each in remedy.blocked}


def test_the_captured_engine_with_dp_attention_metrics() -> None:
    """Waits, steps and experts are on its pages: every rule that the engine's own pages can feed answers."""
    checkup = _captured()
    for name in (signals.SYNC_WAIT, signals.STEPS_ACTIVE, signals.ATTENTION_PAIRS, signals.RECV_WAIT, signals.ACCEPT_LENGTH):
        assert _state(checkup, name) is State.SEEN
    assert {"slow_rank", "context_length_skew", "pd_queue_skew", "speculation_skew"}.isdisjoint(_impossible(checkup))


def test_the_captured_engine_without_the_variable_of_dp_attention() -> None:
    """Its counters stand still: frozen; the late rank cannot be named, and the change that makes it possible is named first."""
    checkup = _captured(dp_attention=False)
    for name in (signals.SYNC_WAIT, signals.STEPS_ACTIVE, signals.ATTENTION_PAIRS):
        assert _state(checkup, name) is State.FROZEN
    assert _state(checkup, signals.RECV_WAIT) is State.SEEN
    change = (CATALOGUE[signals.SYNC_WAIT].enable,)
    assert checkup.impossible[0].changes == change
    late = {rule: _impossible(checkup).get(rule) for rule in ("slow_rank", "host_cpu_starved", "slow_node", "stale_ledger")}
    assert set(late.values()) == {change}
    assert "pd_queue_skew" not in _impossible(checkup)
    assert "1. start SGLang >= 0.5.22 with --enable-metrics and SGLANG_ENABLE_METRICS_DP_ATTENTION=1" in render(checkup, 400)


def test_the_captured_engine_without_metrics() -> None:
    """Load pages alone: nothing is frozen, the change that brings --enable-metrics and more stands before --enable-metrics alone."""
    checkup = _captured(metrics=False)
    assert State.FROZEN not in {s.state for s in checkup.sightings}
    assert _state(checkup, signals.RETRACTED) is State.UNSEEN
    orders = [remedy.changes for remedy in checkup.impossible]
    assert orders.index((CATALOGUE[signals.SYNC_WAIT].enable,)) < orders.index((CATALOGUE[signals.RETRACTED].enable,))
    assert {"kv_pressure", "slow_rank"} <= set(_impossible(checkup))
    document = to_json([checkup])["engines"][0]
    assert [group["changes"] for group in document["impossible"]] == [list(changes) for changes in orders]
    first = document["impossible"][0]["rules"][0]
    assert set(first) == {"rule", "class", "title", "lacks"}


def test_what_cards_and_processes_would_add_is_offered_and_not_missed() -> None:
    """An engine that tells all of itself is complete without a page of cards; the option, and the lines for the exporter, are named."""
    optional = [s.name for s in CATALOGUE.values() if s.optional]
    rules = {**RULES, "cold": _rule("cold", signals.CARD_CLOCK, signals.CARD_THERMAL)}
    checkup = examine(_window(*optional), rules)
    assert checkup.complete
    assert (checkup.impossible, checkup.weaker) == ((), ())
    text = render(checkup, 400)
    assert "--hardware URL" in text
    assert "--procfs" in text
    assert "DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, Current clock event reasons (bitmask)." in text


def test_a_page_of_cards_that_lacks_a_field_blocks_its_rules() -> None:
    """The default counters have clocks and no reasons: the rule on both cannot answer in full, and the line to add is named."""
    rules = {**RULES, "cold": _rule("cold", signals.CARD_CLOCK, signals.CARD_THERMAL)}
    checkup = examine(_window(signals.CARD_THERMAL), rules)
    assert checkup.complete
    assert [(each.rule.id, each.lacks) for each in checkup.weaker] == [("cold", (signals.CARD_THERMAL,))]
