"""One engine's window with everything that several rules ask of it, computed once. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from collector import signals
from collector.model import Clock, FloatArray, Window
from diagnose import attribution, front_end, lockstep, over_past, prefill, prefill_drag, slow_card, sums
from diagnose.model import Share

MIN_INTERVALS = 3
"""Fewer intervals cannot show that anything persists."""

MIN_SECONDS = 2 * lockstep.BLOCK_S
"""Two blocks, so that there is something to agree."""


@dataclass(frozen=True)
class Case:
    """A window, the same engine's healthy past if there is one, and its twins. Rules read the derived quantities from here."""

    window: Window
    baseline: Window | None = None
    twins: tuple[Window, ...] = ()  # of engines that serve the same, now

    @cached_property
    def long_enough(self) -> bool:
        """Whether the window can show that something persists."""
        return len(self.window.edges) > MIN_INTERVALS and self.window.end - self.window.start >= MIN_SECONDS

    @property
    def prefills(self) -> bool:
        """Whether the engine is the prefill half of a split one: it decodes nothing, and its steps are as long as its prompts."""
        return self.window.engine.facts.role == "prefill"

    @cached_property
    def step_time(self) -> float | None:
        """The group's cadence in seconds, None when no step was seen."""
        return lockstep.cadence(self.window)

    @cached_property
    def working(self) -> bool:
        """Whether the engine had running requests or took steps in the window."""
        running = self.window.mean(signals.RUNNING)
        return sums.total(running) > 0.5 or lockstep.group_rate(self.window) is not None

    @cached_property
    def waits(self) -> lockstep.Waits | None:
        """Who waits how long in the host exchanges."""
        return lockstep.waits(self.window)

    @cached_property
    def host_lost(self) -> Share | None:
        """Share of step time that host lateness costs; None when waits are unknown.

        With overlapped scheduling a wait costs only what leaves the device dry. The device timer says how much that is; else the rise over
        the healthy past; else nothing bounds it from below and half of the waits is the estimate. So it is on a prefill server, whose
        time per step holds that without prompts, in which nobody's waiting costs anything.
        """
        if self.waits is None or not self.step_time:
            return None
        waited = self.waits.lost
        if self.prefills:
            upper = min(1.0, waited / self.step_time)
            return Share(upper / 2, 0.0, upper)
        exposed, step = lockstep.host_exposed(self.window), lockstep.active_step(self.window)
        if exposed is not None and step is not None:
            lost = min(1.0, min(waited, exposed) / step)
            return Share(lost, lost, lost)
        upper = min(1.0, waited / self.step_time)
        before = lockstep.cadence(self.baseline) if self.baseline else None
        if before is not None:
            rise = min(upper, max(0.0, self.step_time - before) / self.step_time)
            return Share(rise, 0.0, rise)
        return Share(upper / 2, 0.0, upper)

    @cached_property
    def host_dry(self) -> Share | None:
        """Share of step time in which devices ran dry while hosts waited for each other, whoever was last; None when waits are unknown.

        Step by step somebody waits for nobody, so all waiting is somebody's lateness. If the late one changes, the waits of all ranks are
        alike, and only their size, held against the device timer or the past, shows the loss.
        """
        if self.waits is None or not self.step_time or self.host_lost is None:
            return None
        waited = lockstep.average(self.waits.per_step)
        exposed, step = lockstep.host_exposed(self.window), lockstep.active_step(self.window) or self.step_time
        before = lockstep.cadence(self.baseline) if self.baseline else None
        if exposed is None and before is not None:
            exposed, step = max(0.0, self.step_time - before), self.step_time
        one = self.host_lost
        if exposed is None or self.prefills:
            return one
        dry = max(one.mid, min(1.0, min(waited, exposed) / step))
        return Share(dry, one.low, max(one.high, dry))

    @cached_property
    def pair_load(self) -> attribution.PairLoad | None:
        """How attention work is dealt; None without a common clock, where the busiest rank's work lengthens nobody else's steps."""
        if self.window.engine.clock is Clock.NONE:
            return None
        return attribution.pair_load(self.window, self.baseline)

    @cached_property
    def prefill_load(self) -> prefill.PrefillLoad | None:
        """How prefill work is dealt."""
        return prefill.prefill_load(self.window)

    @cached_property
    def group_drag(self) -> prefill_drag.PrefillDrag | None:
        """What prefill on any rank does to the group's steps."""
        return prefill_drag.prefill_drag(self.window)

    @cached_property
    def prefill_growth(self) -> prefill_drag.Growth | None:
        """What prefill on any rank costs more than in the healthy past."""
        before = prefill.prefill_load(self.baseline) if self.baseline else None
        if self.excess is None or self.prefill_load is None or before is None:
            return None
        leaders = self.prefill_load.drag - before.drag * self.excess.before / self.excess.now
        return prefill_drag.growth(self.window, self.baseline, self.excess, leaders)

    @cached_property
    def first_tokens(self) -> front_end.FirstTokens | None:
        """How long requests wait for their first token, and where."""
        return front_end.first_tokens(self.window, self.group_drag)

    @cached_property
    def first_tokens_before(self) -> front_end.FirstTokens | None:
        """The same of the healthy past."""
        return front_end.usual_first_tokens(self.baseline) if self.baseline else None

    @cached_property
    def excess(self) -> over_past.Excess | None:
        """Cadence that no known cause explains, against the past; None on a prefill server, whose steps are as long as its prompts."""
        return None if self.prefills else over_past.excess(self.window, self.baseline, self.pair_load, self.host_dry)

    @cached_property
    def card(self) -> slow_card.Named | slow_card.Nobody | slow_card.Unidentified | None:
        """Whose card the cadence says is slow; None when pairs, cadence or the group's load were not observed."""
        seen = slow_card.panel(self.window)
        physical = attribution.physical_cost(self.window)
        return None if seen is None else slow_card.look(seen, physical.mid if physical else None)

    @cached_property
    def balancedness(self) -> float | None:
        """Expert balancedness in this window."""
        return attribution.balancedness(self.window)

    @cached_property
    def balancedness_before(self) -> float | None:
        """Expert balancedness in the healthy past."""
        return attribution.balancedness(self.baseline) if self.baseline else None

    @cached_property
    def cpu_per_second(self) -> FloatArray:
        """(R,) CPU seconds per second of each scheduler process: the engine's word, else the kernel's for all ranks."""
        return self.window.mean(signals.SCHEDULER_CPU if self.window.has(signals.SCHEDULER_CPU) else signals.PROCESS_CPU)

    def rank_ids(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """Rank ids of array rows."""
        return tuple(self.window.ranks[k] for k in rows)
