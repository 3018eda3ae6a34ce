"""`speculation_skew`, and the requests that pile up for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector import signals
from diagnose.case import Case
from diagnose.engine import diagnose
from diagnose.model import Finding, Healthy, NoData
from diagnose.rules import load

RULE = "speculation_skew"


def ask(window):
    return load()[RULE].ask(Case(window))


def test_the_share_is_what_the_same_steps_would_yield_more(plant):
    """Rank 4 makes 1.1 tokens per row, its peers 2.5, 8 rows each: 8 x 1.4 are lost of 8 x 8 x 2.5 that could be."""
    found = ask(plant(accept={4: 1.1}).window())
    assert isinstance(found, Finding)
    assert found.ranks == (4,)
    assert found.share.mid == pytest.approx(8 * 1.4 / (64 * 2.5), rel=0.02)
    assert found.share.low <= found.share.mid == found.share.high


def test_requests_that_pile_up_because_drafts_are_refused_are_no_request_skew(plant):
    """By Little's law 2.27 times the steps hold 2.27 times the requests: the cause is the acceptance, though the count stands out more."""
    crowd = tuple(136.0 if r == 4 else 60.0 for r in range(64))
    sick = plant(accept={4: 1.1}, running=crowd, length=(6000.0,) * 64)
    verdict = diagnose(sick.window(), plant().window()).verdict
    assert verdict.cause == RULE
    assert verdict.ranks == (4,)
    assert "request_count_skew" not in {v.cause for v in verdict.also}


def test_a_crowd_beyond_what_acceptance_explains_is_a_request_skew(plant):
    """Fifteen times the requests at 2.3 times the steps: dealing is at fault too."""
    crowd = tuple(120.0 if r == 4 else 8.0 for r in range(64))
    verdict = diagnose(plant(accept={4: 1.1}, running=crowd).window(), plant().window()).verdict
    assert {verdict.cause, *(v.cause for v in verdict.also)} == {RULE, "request_count_skew"}


def test_an_engine_without_speculation_is_healthy_here(plant):
    """One token per request and step on every rank: nothing is drafted."""
    found = ask(plant().window())
    assert isinstance(found, Healthy)
    assert "does not speculate" in found.why


def test_ranks_that_accept_alike_are_healthy(plant):
    """A tenth less than the peers is what content does."""
    assert isinstance(ask(plant(accept={4: 2.25}).window()), Healthy)


def test_few_requests_prove_nothing(plant):
    """Streams of one engine were measured from 30.6 to 90.5 tokens per second by their content alone: two requests name no rank."""
    few = tuple(2.0 if r == 4 else 8.0 for r in range(64))
    found = ask(plant(accept={4: 1.1}, running=few).window())
    assert isinstance(found, Healthy)
    assert "content" in found.why


def test_case_36_nine_kinds_of_prompt_on_one_healthy_engine_name_no_rank(plant):
    """Field case 36: at a step of 63 ms one stream gets 90.5 or 30.6 tokens per second by its content alone, 5.7 or 1.9 a step."""
    case = json.loads((Path(__file__).parents[1] / "field_cases" / "36-spec-accept-content-spread.json").read_text())
    lengths = [rate * case["step_ms_about"] / 1e3 for rate in case["per_stream_tok_s"].values()]
    assert max(lengths) > 2.9 * min(lengths)
    window = plant(ranks=9, running=(1.0,) * 64, accept={0: 2.5}).window()
    steady = np.repeat(np.array(lengths)[:, None], 12, axis=1)
    assert isinstance(ask(replace(window, values=dict(window.values) | {signals.ACCEPT_LENGTH: steady})), Healthy)


def test_a_rank_that_is_low_now_and_then_is_healthy(plant):
    """The lowest in half of the intervals, by far, is not persistent."""
    window = plant(accept={4: 2.5}).window()
    length = np.full((8, 12), 2.5)
    length[4, ::2] = 0.5
    assert isinstance(ask(replace(window, values=dict(window.values) | {signals.ACCEPT_LENGTH: length})), Healthy)


def test_one_observed_rank_has_no_peer(plant):
    """With acceptance on a single rank nothing can be compared, and nobody is named."""
    window = plant(accept={4: 1.1}).window()
    length = np.full((8, 12), np.nan)
    length[4] = 1.1
    assert isinstance(ask(replace(window, values=dict(window.values) | {signals.ACCEPT_LENGTH: length})), NoData)


def test_without_the_signal_there_is_no_answer(plant):
    """Acceptance not observed is no data, not an engine that does not speculate."""
    found = ask(plant(accept={4: 1.1}).window().without(signals.ACCEPT_LENGTH))
    assert isinstance(found, NoData)
    assert found.missing == (signals.ACCEPT_LENGTH,)
