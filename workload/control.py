"""What a fault may do to a running cluster: the handles that `workload.faults` pull."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from workload.config import ClusterConfig
from workload.nursery import Nursery
from workload.wire import Busy, Hotspot, Pin, Stretch, Unpin


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
        """Takes the CPU from a rank's process for `share` of every `period` seconds. Returns how to end it."""
        over = threading.Event()

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
        """Burns that much CPU in each scheduling pass of a rank; 0 ends it."""
        self._nursery.send(f"rank{rank}", Busy(seconds))

    def hotspot(self, rank: int, share: float | None) -> None:
        """Sends `share` of all tokens' expert copies to one card; None ends it."""
        self._nursery.send("fabric", Hotspot(rank, share))

    def stretch(self, factor: float) -> None:
        """Makes every forward `factor` times as long on all cards; 1 ends it."""
        self._nursery.send("fabric", Stretch(factor))

    def pin(self, pin: Pin) -> Callable[[], None]:
        """Keeps requests alive on one rank. Returns how to end it."""
        self._nursery.send("frontend", pin)
        return lambda: self._nursery.send("frontend", Unpin(pin.name))
