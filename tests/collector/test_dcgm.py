"""Pages of dcgm-exporter: the documented fields, what the codes mean, and pages that are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import signals
from collector.errors import SourceError
from collector.hardware import cards, dcgm
from collector.hardware.cards import Look
from collector.model import Page, Source
from collector.redact import Redactor

PAGES = Path(__file__).parents[1] / "data" / "dcgm"
URL = "http://node-a:9400/metrics"


def page(body: bytes) -> Page:
    return Page("e", URL, Source.DCGM, 1000.0, 0.01, 200, "text/plain", body)


def look(body: bytes) -> Look:
    return dcgm.read(page(body), dcgm.parser())


def named(name: str) -> Look:
    return look((PAGES / name).read_bytes())


def line(field: str, value: object, **labels: object) -> str:
    text = ",".join(f'{key}="{it}"' for key, it in {"gpu": 0, "Hostname": "a", **labels}.items())
    return f"DCGM_FI_DEV_{field}{{{text}}} {value}\n"


def one(*lines: str) -> dict[str, float]:
    (card,) = look("".join(lines).encode()).cards
    return dict(card.values)


def test_the_default_counters_give_clocks_heat_retries_and_xids() -> None:
    """MHz become Hz; a program's own XID (31) is no sign of the hardware, 94 is; what the default file lacks is absent, not 0."""
    found = named("default-counters.prom")
    assert found.problems == ()
    assert [(card.host, card.index, card.uuid, card.bus) for card in found.cards[:2]] == [
        ("node-a", 0, "GPU-node-a-0", "0000:10:00.0"),
        ("node-a", 1, "GPU-node-a-1", "0000:11:00.0"),
    ]
    first = found.cards[0].values
    assert first[signals.CARD_CLOCK] == 1980e6
    assert first[signals.CARD_MEMORY_CLOCK] == 3201e6
    assert (first[signals.CARD_TEMPERATURE], first[signals.CARD_MEMORY_TEMPERATURE], first[signals.CARD_POWER]) == (52.0, 61.0, 412.5)
    assert [card.values[signals.CARD_XID] for card in found.cards] == [0.0, 0.0, 94.0, 0.0]
    assert [card.values[signals.CARD_PCIE_REPLAYS] for card in found.cards] == [0.0, 1.0, 2.0, 3.0]
    assert not {signals.CARD_THERMAL, signals.CARD_CORRECTED, signals.CARD_LINK_ERRORS} & set(first)


def test_an_idle_card_has_no_clock_worth_comparing() -> None:
    """Card 3 is at 0 % utilization: its clock is left out; with reasons on the page their idle bit decides."""
    assert [signals.CARD_CLOCK in card.values for card in named("default-counters.prom").cards] == [True, True, True, False]
    assert [signals.CARD_CLOCK in card.values for card in named("with-added-fields.prom").cards] == [True, True, True, False]


def test_added_fields_give_reasons_ecc_and_links() -> None:
    """0x48 is heat and a slowdown by hardware; 0x4 only a power cap; the four NVLink counters add up; unknown fields do no harm."""
    found = named("with-added-fields.prom")
    assert found.problems == ()
    reasons = (signals.CARD_THERMAL, signals.CARD_SLOWDOWN, signals.CARD_BRAKE, signals.CARD_CAPPED)
    assert [[card.values[name] for name in reasons] for card in found.cards] == [
        [1.0, 1.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
    ]
    values = found.cards[0].values
    assert values[signals.CARD_LINK_ERRORS] == 10 + 20 + 300 + 4000
    assert (values[signals.CARD_CORRECTED], values[signals.CARD_UNCORRECTED], values[signals.CARD_PCIE_WIDTH]) == (7.0, 1.0, 16.0)


@pytest.mark.parametrize("spelling", ["CLOCKS_EVENT_REASONS", "CLOCK_THROTTLE_REASONS"])
def test_both_spellings_of_the_reasons_are_read(spelling: str) -> None:
    """DCGM 3.3 renamed the field."""
    assert one(line(spelling, 0x20))[signals.CARD_THERMAL] == 1.0


MEANING = {
    0x8: signals.CARD_SLOWDOWN,
    0x20: signals.CARD_THERMAL,
    0x40: signals.CARD_THERMAL,
    0x80: signals.CARD_BRAKE,
    0x4: signals.CARD_CAPPED,
}


@given(st.integers(0, 0x1FF))
def test_each_reason_bit_means_what_nvml_documents(bits: int) -> None:
    """Any mask: a signal is 1 exactly when one of its documented bits is set; idle, set clocks, sync boost and display are none."""
    found = cards.of_reasons(float(bits))
    expected = {name: float(any(bits & bit for bit, of in MEANING.items() if of == name)) for name in set(MEANING.values())}
    assert found == expected
    assert cards.idle(float(bits), 50.0) is bool(bits & 0x1)


@given(st.floats())
def test_no_number_is_a_mask_or_a_code_unless_it_is_whole_and_not_negative(value: float) -> None:
    """NaN, infinities, fractions and negative numbers are no masks and no codes, and never raise."""
    whole = value >= 0 and value < 2**63 and value == int(value)
    assert bool(cards.of_reasons(value)) is whole
    code = cards.of_xid(value)
    assert code is None or code == 0.0 or code in cards.XIDS


def test_other_hosts_cards_are_told_apart() -> None:
    """A page of two hosts has two cards 0; the order is the page's."""
    found = named("two-hosts.prom")
    assert [(card.host, card.index) for card in found.cards] == [("node-b", 0), ("node-b", 1), ("node-a", 0), ("node-a", 1)]
    assert [card.values[signals.CARD_PCIE_REPLAYS] for card in found.cards] == [100.0, 101.0, 0.0, 1.0]


def test_what_is_no_reading_is_absent() -> None:
    """DCGM's blank values, NaN and negative numbers are absent; the card stays."""
    values = one(line("GPU_TEMP", 2147483632), line("MEMORY_TEMP", "NaN"), line("ECC_DBE_VOL_TOTAL", -1), line("POWER_USAGE", 300))
    assert values == {signals.CARD_POWER: 300.0}


def test_mig_slices_and_labels_that_name_no_card_are_said() -> None:
    """A slice's value is not the card's; a gpu label that is no number names none. Both in a Problem with their number."""
    found = look((line("GPU_TEMP", 50) + line("GPU_TEMP", 51, GPU_I_ID=1) + line("GPU_TEMP", 52, gpu="x")).encode())
    assert [card.values for card in found.cards] == [{signals.CARD_TEMPERATURE: 50.0}]
    text = "\n".join(map(str, found.problems))
    assert "1 values of MIG slices" in text
    assert "1 values without a usable gpu label" in text


def test_a_card_that_is_there_twice_counts_only_where_both_agree() -> None:
    """Pods that share a card repeat its values; joined pages of two nodes without Hostname contradict each other."""
    lines = (
        line("GPU_TEMP", 50, pod="a") + line("GPU_TEMP", 50, pod="b") + line("POWER_USAGE", 1, pod="a") + line("POWER_USAGE", 2, pod="b")
    )
    found = look(lines.encode())
    assert [card.values for card in found.cards] == [{signals.CARD_TEMPERATURE: 50.0}]
    assert "GPU 0 of a is there more than once with different values of POWER_USAGE" in str(found.problems[0])


def test_a_page_without_cards_says_whose_page_to_give() -> None:
    """An engine's own page, or an empty one, has no card: a Problem with the port to ask."""
    (problem,) = look(b'sglang:num_running_reqs{dp_rank="0"} 1\n').problems
    assert "no DCGM field of any card" in str(problem)
    assert "9400" in str(problem)


def test_html_is_refused() -> None:
    """A login page in place of the exporter's is an error, not a node without cards."""
    with pytest.raises(SourceError, match="HTML"):
        look(b"<html>")


def test_a_capture_does_not_tell_pods_and_keeps_what_tells_cards_apart() -> None:
    """Redaction blanks pods, name spaces and unknown labels; the page reads as before."""
    body = (PAGES / "with-added-fields.prom").read_bytes()
    kept = Redactor().page(page(body)).body
    assert b"team-x" not in kept
    assert b"glm-0" not in kept
    assert look(kept).cards == look(body).cards


@given(st.binary(max_size=300))
def test_no_page_breaks_the_reader(body: bytes) -> None:
    """Any bytes give cards, a Problem, or a SourceError."""
    try:
        found = look(b'DCGM_FI_DEV_GPU_TEMP{gpu="' + body)
    except SourceError:
        return
    assert found.cards or found.problems
