"""Cards by name, and what an ill one costs the whole group."""

from __future__ import annotations

from typing import Any

import pytest

from workload.config import ClusterConfig, Limits
from workload.control import Control
from workload.device import Work, catalogue
from workload.device.catalogue import CARDS
from workload.device.experts import ExpertLoad
from workload.device.names import accelerator
from workload.device.roofline import Model, Roofline
from workload.device.state import HEALTHY, CardState, Reason
from workload.device.virtual import VirtualCards
from workload.nursery import Nursery
from workload.wire import DegradeLink, Delay, Incast, Launch, SlowMemory, Throttle, Xid

ROOFLINE = Roofline()
USUAL = [Work(decode_tokens=9, decode_pairs=54_000)] * 8
ROWS = [[72.0] * 8]
LAYERS = 78


def one_ill(state: CardState) -> float:
    """Seconds that one ill card of eight adds to a usual step."""
    return ROOFLINE.step(USUAL, ROWS, [HEALTHY, state, *[HEALTHY] * 6]) - ROOFLINE.step(USUAL, ROWS)


@pytest.mark.parametrize("name", [n for n in CARDS if CARDS[n].nvidia])
def test_a_cards_bandwidth_follows_from_its_memory_clock(name):
    """Two bits a clock on every line of the bus: within 3 % of the data sheet."""
    lines = {"A100": 5120, "H100": 5120, "B200": 8192}.get(name, 6144)
    assert CARDS[name].mem_clock * 1e6 * 2 * lines / 8 == pytest.approx(CARDS[name].bytes_per_second, rel=0.03)


def test_the_default_card_is_the_one_its_name_says():
    """An H20-3e has 141 GB at 4.8 TB/s, and the page says that it is virtual; kernels read 3.0 TB/s of it."""
    card = catalogue.find(ClusterConfig().card)
    assert (card.memory, card.bytes_per_second) == (141e9, 4.8e12)
    assert card.read_rate == pytest.approx(3.0e12)
    assert accelerator(ClusterConfig()) == "NVIDIA H20-3e (virtual)"
    assert accelerator(ClusterConfig(device="cpu")) == "CPU (numpy)"


def test_a_misspelt_card_gets_the_nearest_name():
    """The name is refused where the configuration is made, before any process starts."""
    with pytest.raises(ValueError, match="no card 'H20-3'; did you mean 'H20-3e'"):
        ClusterConfig(card="H20-3")


def test_what_does_not_fit_on_a_card_is_refused_with_what_does():
    """H100: 90 % of 80 GB are 72, less 47.7 of weights: 24.3 GB at 44,928 bytes a token are some 541,000 tokens."""
    with pytest.raises(ValueError, match=r"NVIDIA H100 80GB HBM3: 47\.7 GB of weights.* 54\d{4} or fewer"):
        ClusterConfig(card="H100")
    ClusterConfig(card="H100", limits=Limits(kv_tokens=540_000))
    for name in ("H20-3e", "H200", "B200", "MI300X"):
        ClusterConfig(card=name)


def test_a_step_is_as_much_faster_as_the_card():
    """An H200 reads as fast as an H20-3e and computes 6.7 times as fast: the step keeps what is reading."""
    fast = Roofline(CARDS["H200"], Model.on(CARDS["H200"]))
    reading = 84e9 / 3.0e12
    assert reading < fast.step(USUAL, ROWS) < ROOFLINE.step(USUAL, ROWS)
    rows = LAYERS * 72 * 62.5e6 / 148e12 / 0.5
    saved = rows * (1 - 148 / 989)
    assert ROOFLINE.step(USUAL, ROWS) - fast.step(USUAL, ROWS) == pytest.approx(saved, rel=0.01)


def test_a_slower_clock_scales_what_is_computed():
    """At 0.8 the memory is still kept busy: only the experts' rows take 1/0.8 as long, 72 rows a layer at half the BF16 rate."""
    rows = LAYERS * 72 * 62.5e6 / 148e12 / 0.5
    assert one_ill(CardState(clock=0.8)) == pytest.approx(rows * 0.25)


def test_a_clock_below_what_the_memory_needs_slows_reading_too():
    """At 0.3 of the clock, half of the 0.6 that keeps the memory busy, reading takes twice as long: 28 ms of weights and 0.8 of KV."""
    rows = LAYERS * 72 * 62.5e6 / 148e12 / 0.5
    reading = (84e9 + 54_000 * 44_928) / 3.0e12
    assert one_ill(CardState(clock=0.3)) == pytest.approx(reading + rows * (1 / 0.3 - 1))


def test_slow_memory_scales_what_is_read():
    """At 0.8 of the bandwidth the card reads its 84 GB and its KV in 1/0.8 of the time."""
    reading = (84e9 + 54_000 * 44_928) / 3.0e12
    assert one_ill(CardState(memory=0.8)) == pytest.approx(reading * 0.25)


def test_a_bad_link_scales_its_part_of_both_collectives():
    """At a quarter of the speed a dispatch and a combine take 4 times as long: 20 us each, and 72 copies of 6 and 12 KB at 360 GB/s."""
    both = 2 * 20e-6 + 72 * 6144 * 3 / 360e9
    assert one_ill(CardState(link=0.25)) == pytest.approx(LAYERS * both * 3)


def test_an_incast_scales_the_dispatch_alone():
    """Five times as long into one card; what it sends back is not in the queue."""
    assert one_ill(CardState(incast=5)) == pytest.approx(LAYERS * (20e-6 + 72 * 6144 / 360e9) * 4)


def test_a_delay_is_paid_once_a_step():
    """Not once a layer, and two cards' delays run at the same time."""
    assert one_ill(CardState(delay=0.01)) == pytest.approx(0.01)
    both = [CardState(delay=0.01), CardState(delay=0.004), *[HEALTHY] * 6]
    assert ROOFLINE.step(USUAL, ROWS, both) - ROOFLINE.step(USUAL, ROWS) == pytest.approx(0.01)


def test_an_ill_card_hurts_whoever_leads_and_more_when_it_leads_itself():
    """Its seconds per pair are longer: the same long context costs the group more on the ill card than on a healthy one."""
    states = [CardState(memory=0.8), *[HEALTHY] * 7]
    long = Work(decode_tokens=9, decode_pairs=800_000)
    on_ill, on_well = [long, *USUAL[1:]], [USUAL[0], long, *USUAL[2:]]
    assert ROOFLINE.step(on_ill, ROWS, states) > ROOFLINE.step(on_well, ROWS, states) > ROOFLINE.step(on_well, ROWS)


def test_orders_change_what_they_name_and_end_again():
    """Throttle, memory, link, incast and delay come and go; uncorrected errors and a failed remap stay after their XID is forgotten."""
    ill = HEALTHY
    for order in (Throttle(1, 0.5, 0x40), SlowMemory(1, 0.7, 3.0), DegradeLink(1, 0.4, 2.0, 1.0), Incast(1, 5), Delay(1, 0.01)):
        ill = ill.after(order)
    assert ill == CardState(
        clock=0.5, reasons=Reason.HW_THERMAL, memory=0.7, single_bit=3.0, link=0.4, crc=2.0, replays=1.0, incast=5, delay=0.01
    )
    for order in (Throttle(1, 1, 0), SlowMemory(1, 1, 0), DegradeLink(1, 1, 0, 0), Incast(1, 1), Delay(1, 0)):
        ill = ill.after(order)
    assert ill == HEALTHY
    for code in (48, 64, 74, 0):
        ill = ill.after(Xid(1, code))
    assert (ill.xid, ill.double_bit, ill.remap_failed) == (0, 1, True)


def test_an_order_counts_from_the_next_step_on():
    """The card's delay of half a second is in the step that starts after it was ordered."""
    cards = VirtualCards(ClusterConfig(ranks=2), ExpertLoad(2, 0))
    cards.order(Delay(1, 0.5))
    for rank in range(2):
        cards.launch(rank, Launch(1, 100.0, 9, 54_000, 0, 0, graph=True))
    assert cards.deadline is not None
    assert 0.53 * 0.93 < cards.deadline - 100.0 < 0.56 * 1.07  # 1.5 % of noise


class Recorder(Nursery):
    """Stands for the processes of a cluster: keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, name, message):
        self.sent.append((name, message))


def test_handles_tell_the_card_and_its_sensors():
    """The fabric, which plays the card, and the front end, which shows its readings, hear the same order; a healthy clock has no reason."""
    processes = Recorder()
    control = Control(ClusterConfig(ranks=2), processes)
    control.throttle(1, 0.5, reasons=0x20)
    control.throttle(1, 1.0)
    assert processes.sent == [(name, order) for order in (Throttle(1, 0.5, 0x20), Throttle(1, 1.0, 0)) for name in ("fabric", "frontend")]


def test_handles_refuse_what_no_card_can_do():
    """A clock of nothing, memory above its peak, an incast that speeds up, a negative delay, and a device without cards to order."""
    control = Control(ClusterConfig(ranks=2), Recorder())
    with pytest.raises(ValueError, match="clock 0; give a share"):
        control.throttle(0, 0)
    with pytest.raises(ValueError, match=r"factor 1\.5"):
        control.slow_memory(0, 1.5)
    with pytest.raises(ValueError, match=r"incast of factor 0\.5"):
        control.incast(0, 0.5)
    with pytest.raises(ValueError, match="delay of -1"):
        control.delay(0, -1)
    with pytest.raises(ValueError, match="use device 'virtual'"):
        Control(ClusterConfig(ranks=2, device="cpu"), Recorder()).xid(0, 79)


@pytest.mark.parametrize(
    "work", [Work(decode_tokens=9, decode_pairs=54_000), Work(prefill_tokens=1024, prefill_pairs=4_000_000, graph=False)]
)
def test_a_slowdown_lengthens_whatever_a_step_is_made_of(work):
    """Healthy or ill, decode or prefill: exactly that many times; and a pair still takes its bytes at the card's own bandwidth."""
    ill = [HEALTHY, CardState(clock=0.4, memory=0.5), CardState(link=0.25, incast=3.0), *[HEALTHY] * 5]
    slow = Roofline.of(ClusterConfig(slowdown=6.0))
    for states in (None, ill):
        assert slow.step([work] * 8, ROWS, states) == pytest.approx(6 * ROOFLINE.step([work] * 8, ROWS, states))
    more = Work(decode_tokens=9, decode_pairs=1_054_000)
    assert slow.step([more], [[72.0]]) - slow.step(USUAL[:1], [[72.0]]) == pytest.approx(slow.kv_read(1_000_000) / slow.card.read_rate)


def test_a_slowdown_takes_a_host_as_many_times_as_much():
    """50 ms of CPU beside steps of a third of a second would be hidden."""
    processes = Recorder()
    Control(ClusterConfig(ranks=2, slowdown=6.0), processes).busy(1, 0.05)
    ((name, order),) = processes.sent
    assert (name, order.seconds) == ("rank1", pytest.approx(0.3))


@pytest.mark.parametrize("times", [0.5, 101.0, float("nan")])
def test_a_slowdown_that_is_none_is_refused(times):
    """The card's own speed is the least."""
    with pytest.raises(ValueError, match="a step can take 1 to 100 times as long"):
        ClusterConfig(slowdown=times)
