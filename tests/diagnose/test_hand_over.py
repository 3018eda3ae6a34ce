"""`pd_queue_skew`: requests held between prefill and decode on one rank."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector import signals
from diagnose.case import Case
from diagnose.confidence import calibration
from diagnose.engine import diagnose
from diagnose.model import Class, Finding, Healthy, NoData
from diagnose.report.text import render
from diagnose.rules import load

RULE = "pd_queue_skew"


def ask(window, **values):
    found = dict(window.values) | values
    return load()[RULE].ask(Case(replace(window, values=found)))


def test_the_share_is_that_of_the_requests_held_by_littles_law(plant):
    """Rank 7 holds 6.0, its peers 0.1, of 64 running and 6.7 waiting: 5.9 / 70.7; an engine that is not full regains none of it."""
    found = ask(plant(role="decode", held={7: 6.0}).window())
    assert isinstance(found, Finding)
    assert found.ranks == (7,)
    assert found.share.mid == found.share.high == pytest.approx(5.9 / 70.7)
    assert found.share.low == 0.0
    assert found.evidence[0].signal == signals.TRANSFER_QUEUE
    assert "network counters" in found.would_tell


def test_a_prefill_server_names_the_link_when_its_transfers_are_slow(plant):
    """In flight on rank 2 at 1 GB/s against 50: the link is the reason, and nothing is left to find out."""
    found = ask(plant(role="prefill", running=(0.0,) * 64, held={2: 9.0}, sends={2: 1e9}).window())
    assert isinstance(found, Finding)
    assert found.ranks == (2,)
    assert "its KV link is slow" in found.summary
    assert found.would_tell == ""
    assert [e.signal for e in found.evidence] == [signals.INFLIGHT_QUEUE, signals.TRANSFER_SPEED]


def test_a_prefill_server_with_equal_links_says_what_would_tell(plant):
    """The same queue at equal speed may be of the partner: no link is blamed."""
    found = ask(plant(role="prefill", running=(0.0,) * 64, held={2: 9.0}).window())
    assert isinstance(found, Finding)
    assert "link" not in found.summary
    assert "transfer speed" in found.would_tell


def test_a_rank_without_a_transfer_yet_is_no_slow_link(plant):
    """0 is SGLang's word for no transfer, not a speed."""
    found = ask(plant(role="prefill", running=(0.0,) * 64, held={2: 9.0}, sends={2: 0.0}).window())
    assert isinstance(found, Finding)
    assert [e.signal for e in found.evidence] == [signals.INFLIGHT_QUEUE]


def test_each_queue_of_a_role_is_looked_at(plant):
    """Requests that wait for KV room on rank 3 are found beside an empty transfer queue, and say so."""
    window = plant(role="decode").window()
    queue = np.zeros((8, 12))
    queue[3] = 5.0
    found = ask(window, prealloc_queue=queue)
    assert isinstance(found, Finding)
    assert found.ranks == (3,)
    assert "wait for KV room" in found.summary


def test_queues_that_are_long_on_all_ranks_are_no_skew(plant):
    """Ten on every rank is too little of the other half of the split: nobody is named."""
    assert isinstance(ask(plant(role="decode", held=dict.fromkeys(range(8), 10.0)).window()), Healthy)


def test_case_11_a_backlog_that_grows_on_all_ranks_is_never_healthy(plant):
    """Field case 11, one prefill instance: 18 requests wait for the decode side, then 35, while compute is idle. No rank is named, and the
    answer is that the other half must be asked."""
    log = (Path(__file__).parents[1] / "field_cases" / "11-sglang22877-prealloc-growth.log").read_text()
    held = [float(number) for number in re.findall(r"#prealloc-req: (\d+)", log)]
    assert (held[0], held[-1]) == (18.0, 35.0)
    for ranks in (1, 8):
        window = plant(ranks=ranks, role="prefill", running=(0.0,) * 64).window()
        queue = np.tile(np.interp(np.linspace(0, 1, 12), np.linspace(0, 1, len(held)), held), (ranks, 1))
        found = ask(window, bootstrap_queue=queue)
        assert isinstance(found, NoData)
        assert "pile up on all ranks" in found.why
        stuck = replace(window, values=dict(window.values) | {"bootstrap_queue": queue})
        assert diagnose(stuck).verdict.klass is Class.INSUFFICIENT


def test_one_rank_has_no_peer(plant):
    """A queue on the only rank may be long for any reason: nobody is named."""
    assert isinstance(ask(plant(ranks=1, role="decode", held={0: 6.0}).window()), NoData)


def test_a_queue_that_comes_and_goes_is_none(plant):
    """Thirty requests in three of twelve intervals make a mean of 7.5, and do not persist."""
    queue = np.zeros((8, 12))
    queue[3, :3] = 30.0
    found = ask(plant(role="decode").window(), transfer_queue=queue)
    assert isinstance(found, Healthy)
    assert "25%" in found.why


def test_an_engine_that_is_not_split_is_healthy_here(plant):
    """No hand-over, nothing to hold: healthy, even without the section."""
    window = plant().window()
    found = load()[RULE].ask(Case(window.without(signals.TRANSFER_QUEUE)))
    assert isinstance(found, Healthy)
    assert "not disaggregated" in found.why


def test_a_split_engine_whose_queues_are_unknown_is_not_healthy(plant):
    """Without the section of a decode server the verdict is insufficient evidence and names the signal."""
    window = plant(role="decode").window().without(*load()[RULE].needs[:4])
    found = load()[RULE].ask(Case(window))
    assert isinstance(found, NoData)
    assert signals.TRANSFER_QUEUE in found.missing
    assert diagnose(window, window).verdict.klass is Class.INSUFFICIENT


def test_an_unknown_role_is_not_guessed_from_the_queues(plant):
    """Ranks that disagree on their role give none: no data."""
    assert isinstance(ask(plant(role=None, held={7: 6.0}).window()), NoData)


def test_a_healthy_prefill_server_is_healthy(plant):
    """A server that decodes nothing needs no decode steps, graphs or acceptance to be called healthy, with a past of shorter
    prompts or without one; that the whole group may be slow is left open, and said."""
    of_decoding = (signals.DECODE_STEPS, signals.DECODE_TIME, signals.GRAPH_STEPS, signals.EAGER_STEPS, signals.ACCEPT_LENGTH)
    window = plant(role="prefill").window().without(*of_decoding)
    faster = {name: found * 1.3 if name in (signals.STEPS_ACTIVE, signals.STEPS_IDLE) else found for name, found in window.values.items()}
    for past in (None, window, replace(window, values=faster)):
        result = diagnose(window, past)
        assert result.verdict.klass is Class.HEALTHY
        assert result.verdict.confidence == pytest.approx(0.8 * calibration().healthy, abs=1e-3)
        assert "a slowdown of the whole group would not be seen" in " ".join(result.notes)


def test_requests_that_wait_are_no_lost_step_time(scenes):
    """The share is of the requests' time: it is said so, and the group's lost time does not hold it."""
    result = diagnose(scenes[RULE].window(), scenes["healthy"].window())
    assert result.verdict.share_of == "the requests' time"
    assert RULE not in result.verdict.lost_time.by_cause
    assert result.verdict.lost_time.share == pytest.approx(0.0, abs=0.02)
    assert "8% (0% to 8%) of the requests' time" in render(result, colour=False, width=100)


def test_time_without_prompts_is_no_lost_time(plant):
    """A fifth of each step is waited by all ranks alike while the device stands: on a decoding engine somebody was late, on a prefill
    server there was no prompt."""
    verdicts = {}
    for role in ("unified", "prefill"):
        window = plant(role=role).window()
        idle = {signals.SYNC_WAIT: window.get(signals.SYNC_WAIT) + 0.2, signals.FORWARD_TIME: window.get(signals.FORWARD_TIME) * 0.7}
        found = replace(window, values=dict(window.values) | idle)
        verdicts[role] = diagnose(found.without(signals.DECODE_STEPS) if role == "prefill" else found).verdict.klass
    assert verdicts == {"unified": Class.INSUFFICIENT, "prefill": Class.HEALTHY}


def test_a_late_host_of_a_prefill_server_has_no_lower_bound(plant):
    """Rank 5 is 30 ms late in every step; how much of that fell into time without prompts is unknown, so the cost begins at nothing and
    half of the waits is the estimate."""
    window = plant(role="prefill", delay={5: 0.030}).window()
    case = Case(window.without(signals.DECODE_STEPS))
    assert case.waits is not None
    assert case.host_lost is not None
    assert case.step_time is not None
    upper = case.waits.lost / case.step_time
    assert (case.host_lost.low, case.host_lost.mid, case.host_lost.high) == pytest.approx((0.0, upper / 2, upper))
