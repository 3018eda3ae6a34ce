"""What a fault may do to a running cluster: the handles that `workload.faults` pull."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable

from workload.config import ClusterConfig
from workload.nursery import ClusterError, Nursery
from workload.wire import (
    AcceptFactor,
    Busy,
    CardOrder,
    Close,
    DegradeLink,
    Delay,
    Drain,
    Estrange,
    GraphVote,
    Hold,
    Hotspot,
    Incast,
    KvLinkFactor,
    KvReserve,
    Pin,
    Publisher,
    SlowMemory,
    Stretch,
    Throttle,
    Unpin,
    Xid,
)


class Control:
    def __init__(self, config: ClusterConfig, nursery: Nursery) -> None:
        self.config = config
        self._nursery = nursery

    def stop_process(self, rank: int) -> None:
        """Takes the CPU from a rank's scheduler process, until `continue_process`."""
        self._nursery.signal(f"rank{rank}", signal.SIGSTOP)

    def continue_process(self, rank: int) -> None:
        self._nursery.signal(f"rank{rank}", signal.SIGCONT)

    def starve(self, rank: int, share: float, period: float) -> Callable[[], None]:
        """Takes the CPU from a rank's process for `share` of every `period` seconds, times the cards' slowdown. Returns how to end it."""
        over = threading.Event()
        period *= self.config.slowdown  # what is late must be late by a share of a step that slow cards do not hide

        def run() -> None:
            while not over.is_set():
                self.stop_process(rank)
                over.wait(period * share)
                self.continue_process(rank)
                over.wait(period * (1 - share))

        thread = threading.Thread(target=run, name=f"starve-rank{rank}", daemon=True)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()
            self.continue_process(rank)

        return end

    def busy(self, rank: int, seconds: float) -> None:
        """Burns that much CPU, times the cards' slowdown, in each scheduling pass of a rank; 0 ends it."""
        self._nursery.send(f"rank{rank}", Busy(seconds * self.config.slowdown))

    def hotspot(self, rank: int, share: float | None) -> None:
        """Sends `share` of all tokens' expert copies to one card; None ends it."""
        self._nursery.send("fabric", Hotspot(rank, share))

    def stretch(self, factor: float) -> None:
        """Makes every forward `factor` times as long on all cards; 1 ends it."""
        self._nursery.send("fabric", Stretch(factor))

    def throttle(self, rank: int, clock: float, reasons: int = 0x40) -> None:
        """Lowers a card's SM clock to `clock` of it, for NVML's `reasons` (0x40: too hot); 1 ends it."""
        self._card(Throttle(rank, _share("clock", clock), 0 if clock == 1 else reasons))

    def slow_memory(self, rank: int, factor: float, single_bit: float = 0.0) -> None:
        """Lowers a card's memory clock to `factor` of it, with so many corrected ECC errors per second; 1 ends it."""
        self._card(SlowMemory(rank, _share("factor", factor), single_bit))

    def degrade_link(self, rank: int, factor: float, crc: float = 0.0, replays: float = 0.0) -> None:
        """Slows a card's part of every collective to `factor`, with NVLink checksum errors and PCIe replays per second; 1 ends it."""
        self._card(DegradeLink(rank, _share("factor", factor), crc, replays))

    def incast(self, rank: int, factor: float) -> None:
        """Makes the dispatch of tokens into one card take `factor` times as long; 1 ends it."""
        if factor < 1:
            raise ValueError(f"an incast of factor {factor:g}; it makes a dispatch longer: 1 or more")
        self._card(Incast(rank, factor))

    def delay(self, rank: int, seconds: float) -> None:
        """Makes a card take `seconds` more for every step; 0 ends it."""
        if seconds < 0:
            raise ValueError(f"a delay of {seconds:g} s; give 0 or more")
        self._card(Delay(rank, seconds))

    def xid(self, rank: int, code: int) -> None:
        """Makes a card's driver report an XID error; 0 forgets it, but not the errors that it counted."""
        self._card(Xid(rank, code))

    def _card(self, order: CardOrder) -> None:
        """To the card, and to the front end, which says what the card's sensors would say."""
        if self.config.device != "virtual":
            raise ValueError(f"device {self.config.device!r} has no card that takes orders; use device 'virtual'")
        for name in ("fabric", "frontend"):
            self._nursery.send(name, order)

    def stick_publisher(self, rank: int, *, stuck: bool) -> None:
        """Stops a rank's load snapshots while it steps on, or lets them go on."""
        self._nursery.send(f"rank{rank}", Publisher(stuck))

    def vote_graph(self, rank: int, *, allowed: bool) -> None:
        """Not `allowed`: the rank votes against every CUDA graph, so that no rank's decodes run in one."""
        self._nursery.send(f"rank{rank}", GraphVote(allowed))

    def accept(self, rank: int, factor: float) -> None:
        """Multiplies the chance that the rank's drafted tokens are accepted; 1 ends it. Raises ValueError without speculation."""
        if self.config.engine.speculation is None:
            raise ValueError("the cluster does not speculate; start it with EngineFlags(speculation=Speculation())")
        self._nursery.send(f"rank{rank}", AcceptFactor(factor))

    def kv_link(self, rank: int, factor: float) -> None:
        """Multiplies the speed of a rank's KV link; 1 ends it. Raises ValueError on an engine that is not split."""
        if self.config.engine.split is None:
            raise ValueError("the cluster is not split; start it with EngineFlags(split=Split('prefill')) or 'decode'")
        self._nursery.send(f"rank{rank}", KvLinkFactor(factor))

    def kv_reserve(self, rank: int, share: float) -> None:
        """Takes a share (0 to 1) of a rank's KV pool from its requests, which retract until they fit; 0 ends it."""
        if not 0 <= share <= 1:
            raise ValueError(f"{share} of the KV pool; it is a share, 0 to 1")
        self._nursery.send(f"rank{rank}", KvReserve(round(share * self.config.limits.kv_tokens)))

    def hold_answers(self, seconds: float) -> None:
        """Keeps what the ranks produce so long in the front end; 0 ends it."""
        self._nursery.send("frontend", Hold(seconds))

    def close(self, *, closed: bool) -> None:
        """Turns all ordinary traffic away, what is under way of it too, or lets it in again."""
        self._nursery.send("frontend", Close(closed))

    def drain(self, rank: int, *, drained: bool) -> None:
        """Sends a rank nothing new but pinned requests, or does again."""
        self._nursery.send("frontend", Drain(rank, drained))

    def estrange(self, rank: int, share: float) -> None:
        """Makes `share` (0 to 1) of a rank's new requests continue conversations that another rank's cache holds; 0 ends it."""
        if not 0 <= share <= 1:
            raise ValueError(f"{share} of a rank's requests; it is a share, 0 to 1")
        self._nursery.send("frontend", Estrange(rank, share))

    def every(self, period: float, act: Callable[[int], None]) -> Callable[[], None]:
        """Calls act(0) now, and act(1), act(2) ... each `period` seconds later. Returns how to end it, which waits for a running one."""
        over = threading.Event()

        def run() -> None:
            start, turn = time.monotonic(), 0
            with contextlib.suppress(ClusterError):  # the cluster is gone; whoever runs it hears so elsewhere
                while not over.wait(max(0.0, start + turn * period - time.monotonic())):
                    act(turn)
                    turn += 1

        thread = threading.Thread(target=run, name="fault-every", daemon=True)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()

        return end

    def pin(self, pin: Pin) -> Callable[[], None]:
        """Keeps requests alive on one rank. Returns how to end it."""
        self._nursery.send("frontend", pin)
        return lambda: self._nursery.send("frontend", Unpin(pin.name))


def _share(name: str, value: float) -> float:
    if not 0 < value <= 1:
        raise ValueError(f"{name} {value:g}; give a share of a healthy card's, above 0 and up to 1")
    return value
