"""SGLang's /v1/loads and /server_info in canonical signals. The capture is the real route's output in all its variants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import signals
from collector.engines import sglang, sglang_loads
from collector.errors import SourceError
from collector.model import Page, Reading, Source

TESTS = Path(__file__).parents[1]
VARIANTS: dict[str, Any] = json.loads((TESTS / "captures" / "sglang-0.5.23" / "v1-loads.json").read_text())
CASE_25: dict[str, Any] = json.loads((TESTS / "field_cases" / "25-v1loads-zeroed-and-empty.json").read_text())

REPLY = {"timestamp": "2026-11-30T00:00:10+00:00", "version": "0.5.23"}
NOW = 1795996810.0  # that timestamp, unix


def read(body: object, source: Source = Source.SGLANG_LOADS, status: int = 200) -> Reading:
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return sglang.read(Page("h:1", "http://h:1", source, 5000.0, 0.01, status, "application/json", raw))


def said(reading: Reading) -> str:
    return "\n".join(map(str, reading.problems))


def loads(*entries: dict[str, Any]) -> Reading:
    return read({**REPLY, "loads": list(entries)})


@pytest.mark.parametrize("variant", ["full", "core", "queues", "bad include+all"])
def test_a_reply_in_any_of_its_lengths(variant: str) -> None:
    """Core fields are on every variant; the values are the capture's, in our units."""
    reading = read(VARIANTS[variant]["body"])
    section = {name for name, *_ in sglang_loads.SECTION_FIELDS}
    assert {name: dict(found) for name, found in reading.values.items() if name not in {signals.SNAPSHOT_AGE, *section}} == {
        signals.RUNNING: {0: 52.0, 1: 24.0},
        signals.WAITING: {0: 7.0, 1: 0.0},
        signals.RESIDENT_TOKENS: {0: 201344.0, 1: 98304.0},
        signals.WAITING_TOKENS: {0: 14336.0, 1: 0.0},
        signals.KV_USAGE: {0: 0.4476, 1: 0.2186},
        signals.PREFILL_TOKENS: {0: 18834432.0, 1: 18120448.0},
        signals.PREFILL_BUSY: pytest.approx({0: 412.339114, 1: 398.220991}),
        signals.DECODE_STEPS: {0: 88123.0, 1: 88120.0},
        signals.DECODE_TIME: pytest.approx({0: 2423.3825, 1: 2423.1201}),
        sglang_loads.ROWS: {0: 4273944.0, 1: 2113221.0},
        sglang_loads.TOKENS: {0: 4273944.0, 1: 2113221.0},
    }
    assert reading.problems == ()
    assert reading.facts.version == "0.5.23"


def test_age_is_taken_on_the_engines_clock_and_times_on_ours() -> None:
    """Reply 00:00:05.597181, rank 0 published 1795996805.3795772: .2176 s old when it arrived at our 5000."""
    reading = read(VARIANTS["full"]["body"])
    assert dict(reading.values[signals.SNAPSHOT_AGE]) == pytest.approx({0: 0.217604, 1: 0.057604}, abs=1e-5)
    assert dict(reading.times) == pytest.approx({0: 5000 - 0.217604, 1: 5000 - 0.057604}, abs=1e-5)


def test_facts_of_the_memory_section() -> None:
    """28.667 GB for 449,792 tokens; the mode "null" is a unified engine; a pool of 0 GB is not reported, not empty."""
    facts = read(VARIANTS["full"]["body"]).facts
    assert facts.kv_bytes_per_token == pytest.approx(28.667e9 / 449792)
    assert facts.role == "unified"
    zero = loads({"dp_rank": 0, "timestamp": NOW, "memory": {"kv_cache_gb": 0.0, "token_capacity": 0}})
    assert zero.facts.kv_bytes_per_token is None


def test_the_hand_over_of_a_split_engine_and_its_acceptance() -> None:
    """Queues in requests, speed in bytes per second, latency in seconds, on a split engine alone; the section of speculation is
    there only with speculation."""
    section = {
        "mode": "prefill",
        "prefill_bootstrap_queue_reqs": 3,
        "prefill_inflight_queue_reqs": 4,
        "decode_prealloc_queue_reqs": 0,
        "decode_transfer_queue_reqs": 0,
        "kv_transfer_speed_gb_s": 48.5,
        "kv_transfer_latency_ms": 12.5,
    }
    reading = loads({"dp_rank": 0, "timestamp": NOW, "disaggregation": section, "speculative": {"accept_length": 2.4, "accept_rate": 0.5}})
    assert {name: dict(found) for name, found in reading.values.items() if name != signals.SNAPSHOT_AGE} == {
        signals.BOOTSTRAP_QUEUE: {0: 3.0},
        signals.INFLIGHT_QUEUE: {0: 4.0},
        signals.PREALLOC_QUEUE: {0: 0.0},
        signals.TRANSFER_QUEUE: {0: 0.0},
        signals.TRANSFER_SPEED: {0: pytest.approx(48.5e9)},
        signals.TRANSFER_LATENCY: {0: pytest.approx(0.0125)},
        signals.ACCEPT_LENGTH: {0: 2.4},
    }
    assert reading.facts.role == "prefill"
    whole = {**section, "mode": "null", "prefill_bootstrap_queue_reqs": 0, "prefill_inflight_queue_reqs": 0}
    without = loads({"dp_rank": 0, "timestamp": NOW, "disaggregation": whole, "speculative": None})
    assert set(without.values) == {signals.SNAPSHOT_AGE}


def test_one_rank_of_several() -> None:
    """A filtered reply holds that rank only."""
    assert set(read(VARIANTS["dp_rank=1 core"]["body"]).times) == {1}


@pytest.mark.parametrize("body", [VARIANTS["no shm file yet"]["body"], VARIANTS["dp_rank=9"]["body"], CASE_25["empty"]])
def test_no_ranks_is_a_broken_or_starting_endpoint(body: object) -> None:
    """`loads: []` comes with status 200; it is not an idle cluster."""
    reading = read(body)
    assert dict(reading.values) == {}
    assert "not an idle cluster" in said(reading)


def test_ranks_that_never_published_are_not_idle() -> None:
    """Zeroed slots (timestamp 0.0, capacity 0) hold no value at all."""
    reading = read(VARIANTS["slots created, never published"]["body"])
    assert dict(reading.times) == {}
    assert dict(reading.values) == {}
    assert "ranks 0-1 never published" in said(reading)


def test_case_25_a_zeroed_rank_beside_one_that_works() -> None:
    """Older shape without rank timestamps: rank 1 is not ready, rank 0 is read, at the time of arrival, with unknown age."""
    reading = read(CASE_25["zeroed"])
    assert dict(reading.values[signals.RUNNING]) == {0: 5.0}
    assert dict(reading.times) == {0: 5000.0}
    assert signals.SNAPSHOT_AGE not in reading.values
    assert signals.DECODE_STEPS not in reading.values
    assert "rank 1 never published" in said(reading)


def test_case_24_the_bare_list_of_get_load_names_the_endpoint_to_ask() -> None:
    """The old endpoint's fields mean other things; it is refused, not guessed at."""
    with pytest.raises(SourceError, match=r"/get_load; ask /v1/loads"):
        read((TESTS / "field_cases" / "24-sglang-get_load-list-shape.json").read_bytes())


def test_the_shape_before_0_5_14() -> None:
    """`dp_rank_count` and `aggregate` beside the list, few fields: accepted by what is there."""
    entry = {"dp_rank": 0, "num_running_reqs": 3, "num_waiting_reqs": 1, "num_total_reqs": 4, "num_used_tokens": 90, "token_usage": 0.1}
    reading = read({**REPLY, "dp_rank_count": 1, "loads": [entry], "aggregate": {"total_tokens": 90}})
    assert dict(reading.values[signals.RUNNING]) == {0: 3.0}
    assert reading.problems == ()


@pytest.mark.parametrize("variant", ["dp_rank=abc", "bad include", "POST", "prometheus"])
def test_replies_that_are_no_load_reply(variant: str) -> None:
    """Error statuses, and the Prometheus text of the same endpoint: SourceError with the URL."""
    with pytest.raises(SourceError, match="http://h:1/v1/loads"):
        read(VARIANTS[variant]["body"], status=VARIANTS[variant]["status"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<html><body>sign in</body></html>",
        b'{"loads": [',
        b'{"loads": [{"dp_rank": NaN}]}',
        b'{"loads": [{"dp_rank": 0, "token_usage": 1e999}]}',
        b'{"loads": [{"dp_rank": 0, "num_running_reqs": "many"}]}',
        b'{"loads": [{"dp_rank": true}]}',
        b'{"loads": [{"dp_rank": 1.5}]}',
        b'{"loads": {"0": 1}}',
        b'{"loads": null}',
        b'{"detail": "Not Found"}',
        b'"loads"',
        b"\xff\xfe{",
        b'{"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"x": ' + b'{"a":' * 200_000,
        b'{"loads": [{"dp_rank": ' + b"9" * 10_000 + b"}]}",
        b'{"loads": [{"dp_rank": 0, "num_running_reqs": ' + b"9" * 10_000 + b"}]}",
    ],
)
def test_hostile_json_is_a_source_error(body: bytes) -> None:
    """Deep nesting, NaN, numbers without end, wrong types, no JSON: always the same exception, always with the URL."""
    with pytest.raises(SourceError, match="http://h:1/v1/loads") as caught:
        read(body)
    assert len(str(caught.value)) < 500


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["loads", "dp_rank", "timestamp", "decode_moments", "memory", "token_usage", "x"]), inner)
        ),
    )
)
def test_any_json_gives_a_reading_or_a_source_error(body: object) -> None:
    """Nothing else ever comes out."""
    for source in (Source.SGLANG_LOADS, Source.SGLANG_SERVER_INFO):
        try:
            reading = read(body, source)
        except SourceError:
            continue
        assert set(reading.times) <= set(range(4096))


def test_entries_whose_rank_cannot_be_used_cost_themselves_only() -> None:
    """Missing, null, negative, absurd and duplicate dp_rank: skipped and named; the first of two is taken."""
    entry = {"timestamp": NOW, "max_total_num_tokens": 9}
    reading = loads(
        {**entry, "num_running_reqs": 1},
        {**entry, "dp_rank": None, "num_running_reqs": 1},
        {**entry, "dp_rank": -1, "num_running_reqs": 1},
        {**entry, "dp_rank": 10**15, "num_running_reqs": 1},
        {**entry, "dp_rank": 3, "num_running_reqs": 7},
        {**entry, "dp_rank": 3, "num_running_reqs": 8},
    )
    assert dict(reading.values[signals.RUNNING]) == {3: 7.0}
    for words in ("without dp_rank", "dp_rank -1 is not a rank", "more than 12 digits", "dp_rank 3 is there twice"):
        assert words in said(reading)


def test_null_fields_are_absent_and_negative_ones_no_reading() -> None:
    """msgspec variants print null; a race was seen to print a negative usage."""
    reading = loads(
        {"dp_rank": 0, "timestamp": NOW, "num_running_reqs": None, "token_usage": -0.1, "num_waiting_reqs": 2, "decode_moments": None}
    )
    assert dict(reading.values) == {signals.WAITING: {0: 2.0}, signals.SNAPSHOT_AGE: {0: 0.0}}
    assert "token_usage -0.1" in said(reading)


@pytest.mark.parametrize("moments", [[], [5.0], [5.0, 1.0, None], [-5.0, 1.0, 2.0]])
def test_decode_moments_that_lack_what_is_read(moments: list[float | None]) -> None:
    """A shorter or broken vector gives no half-read step time."""
    reading = loads({"dp_rank": 0, "timestamp": NOW, "decode_moments": moments})
    assert signals.DECODE_TIME not in reading.values
    assert "decode_moments" in said(reading)


@pytest.mark.parametrize(
    ("published", "age", "problem"),
    [
        (NOW - 7.5, 7.5, ""),
        (NOW - 90_000, 90_000.0, ""),  # an engine that stopped yesterday
        (NOW + 1.0, 0.0, ""),  # clocks of two hosts
        (NOW + 30.0, None, "30 s ahead"),
        (12345.6, None, ""),  # a process clock
        ("2026-11-30T00:00:08Z", 2.0, ""),
        ("2026-11-30T00:00:08", 2.0, ""),
        ("yesterday", None, ""),
        (None, None, ""),
    ],
)
def test_ages_that_can_and_cannot_be_meant(published: object, age: float | None, problem: str) -> None:
    """An age that is unknown is absent, and the values count as of the arrival."""
    reading = loads({"dp_rank": 0, "timestamp": published, "num_running_reqs": 1})
    assert reading.values.get(signals.SNAPSHOT_AGE) == (None if age is None else {0: age})
    assert reading.times[0] == 5000.0 - (age or 0.0)
    assert problem in said(reading)
    assert bool(problem) == bool(reading.problems)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"dp_size": 1, "attn_dp_size": 8}, 8),  # 0.5.22 on: DP attention
        ({"dp_size": 4, "attn_dp_size": 1}, 4),  # plain DP
        ({"dp_size": 8, "enable_dp_attention": True}, 8),  # before attn_dp_size
        ({"dp_size": 2, "attn_dp_size": None}, 2),
        ({}, None),
        ({"dp_size": 0}, None),
        ({"dp_size": 10**9, "attn_dp_size": 10**9}, None),
    ],
)
def test_expected_ranks_are_the_product_of_both_sizes(sizes: dict[str, object], expected: int | None) -> None:
    """Under DP attention dp_size is 1; the number of ranks is dp_size * attn_dp_size."""
    reading = read({**sizes, "version": "0.5.23", "served_model_name": "m", "disaggregation_mode": "decode"}, Source.SGLANG_SERVER_INFO)
    assert reading.facts.expected_ranks == expected
    assert (reading.facts.version, reading.facts.model, reading.facts.role) == ("0.5.23", "m", "decode")
    assert bool(reading.problems) == (sizes != {} and expected is None)


@pytest.mark.parametrize(
    ("info", "cards"),
    [
        ({"dp_size": 1, "attn_dp_size": 8, "tp_size": 8}, 8),  # DP attention: the TP group's cards are dealt to its ranks
        ({"dp_size": 1, "attn_dp_size": 4, "tp_size": 8, "pp_size": 1}, 8),
        ({"dp_size": 4, "attn_dp_size": 1, "tp_size": 2}, 8),  # plain DP: a TP group for each rank
        ({"dp_size": 8, "enable_dp_attention": True, "tp_size": 8}, 8),  # before attn_dp_size
        ({"dp_size": 1, "attn_dp_size": 8, "tp_size": 8, "pp_size": 2}, None),  # a stage's cards are no one rank's
        ({"dp_size": 8}, None),
        ({"dp_size": 0, "tp_size": 8}, None),
    ],
)
def test_how_many_cards_an_engine_has(info: dict[str, object], cards: int | None) -> None:
    """From the sizes that /server_info states."""
    body = json.dumps(info).encode()
    page = Page("e", "http://h:1", Source.SGLANG_SERVER_INFO, 1.0, 0.1, 200, "", body)
    assert sglang.read(page).facts.cards == cards
