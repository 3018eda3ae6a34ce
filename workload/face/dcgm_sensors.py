"""What the sensors of a virtual card would say: clocks, temperatures, power and error counts that follow from its state.

Temperatures and watts are plausible figures for a card in an air-cooled server, not measurements; that a hot card is hot, a capped one
draws its limit, and an idle one does neither is what matters.
"""

from __future__ import annotations

from dataclasses import dataclass

from workload.device.catalogue import Card
from workload.device.state import HEALTHY, CardState, Reason
from workload.wire import CardOrder

_IDLE_CLOCK = 345  # MHz, an idle Hopper's
_IDLE_C, _BUSY_C = 34, 58
_SOFTWARE_C, _HARDWARE_C = 87, 92  # where a driver, then the hardware itself, slows a card down
_MEMORY_WARMER_C = 9
_SPREAD_C = (0, 2, -1, 1, 3, -2, 1, -1)  # healthy neighbours differ by their place in the air stream
_IDLE_POWER, _BUSY_POWER = 0.22, 0.62  # of the limit; decoding waits for the memory and stays below it


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a card, in DCGM's units: MHz, degrees Celsius, watts, percent; counts since the start."""

    sm_clock: int
    mem_clock: int
    gpu_temp: int
    memory_temp: int
    power: float
    utilization: int
    reasons: int
    xid: int
    single_bit: int
    double_bit: int
    remap_failed: int
    crc: int
    replays: int


class Sensors:
    """One card's. Times are monotonic seconds and never run backwards."""

    def __init__(self, card: Card, place: int, now: float) -> None:
        self._card = card
        self._spread = _SPREAD_C[place % len(_SPREAD_C)]
        self._state = HEALTHY
        self._at = now
        self._single_bit = self._crc = self._replays = 0.0

    def order(self, order: CardOrder, now: float) -> None:
        """Changes the state, once what the old one has counted is booked."""
        self._count(now)
        self._state = self._state.after(order)

    def read(self, now: float, *, busy: bool) -> Reading:
        """`busy`: the card's rank has requests. A throttled card says why only while it is at work, an idle one that it is idle."""
        self._count(now)
        card, state = self._card, self._state
        reasons = Reason(state.reasons) if busy else Reason.IDLE
        temp = _temperature(reasons, busy=busy) + self._spread
        return Reading(
            sm_clock=round(card.sm_clock * state.clock) if busy else _IDLE_CLOCK,
            mem_clock=round(card.mem_clock * state.memory),
            gpu_temp=temp,
            memory_temp=temp + (_MEMORY_WARMER_C if busy else 0),
            power=card.watts * _power(state, reasons, busy=busy),
            utilization=100 if busy else 0,
            reasons=int(reasons),
            xid=state.xid,
            single_bit=int(self._single_bit),
            double_bit=state.double_bit,
            remap_failed=int(state.remap_failed),
            crc=int(self._crc),
            replays=int(self._replays),
        )

    def _count(self, now: float) -> None:
        passed, self._at = now - self._at, now
        self._single_bit += self._state.single_bit * passed
        self._crc += self._state.crc * passed
        self._replays += self._state.replays * passed


def _temperature(reasons: Reason, *, busy: bool) -> int:
    if reasons & Reason.HW_THERMAL:
        return _HARDWARE_C
    if reasons & Reason.SW_THERMAL:
        return _SOFTWARE_C
    return _BUSY_C if busy else _IDLE_C


def _power(state: CardState, reasons: Reason, *, busy: bool) -> float:
    """Share of the limit: what is above idle follows the clock, and a capped card is at its limit by definition."""
    if reasons & Reason.POWER_CAP:
        return 1.0
    return _IDLE_POWER + (_BUSY_POWER - _IDLE_POWER) * state.clock if busy else _IDLE_POWER
