"""The step time above what the engine's own past explains, after load, prompts and host waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from collector.model import Window
from diagnose import attribution, lockstep, prefill, step_model
from diagnose.attribution import PairCost, PairLoad
from diagnose.model import Share


@dataclass(frozen=True, slots=True)
class Excess:
    """Step time above what the engine's own past explains. `by_load`: the share of step time that the window's load takes more than the
    past's, None where only means were compared; then `share` holds whatever prompts on all ranks cost more, too."""

    share: Share  # of step time; mid may be negative
    before: float  # s, the cadence
    now: float  # s
    tokens_ratio: float | None  # tokens per step of the group against the past
    by_load: float | None = None


def excess(window: Window, baseline: Window | None, load_now: PairLoad | None, host_share: Share | None) -> Excess | None:
    """What of the step time no known cause explains, against `baseline`; None without a past, cadence, pairs or the host's share.
    `load_now` is the window's `pair_load`.

    By the fit of step times to load (`step_model`), else by the difference of the two cadences.
    """
    if baseline is None or host_share is None:
        return None
    now, before = lockstep.cadence(window), lockstep.cadence(baseline)
    if now is None or before is None or load_now is None or load_now.cost is None or not attribution.dealt(baseline):
        return None
    grown = load_now.busiest - lockstep.most(attribution.mean_pairs(baseline))
    tokens = _ratio(attribution.tokens_per_step(window), attribution.tokens_per_step(baseline))
    fitted = step_model.beyond(window, baseline, load_now.cost.mid)
    if fitted is not None:
        share = _by_fit(fitted, grown / now, load_now.cost, host_share, _all_late(window, baseline) if fitted.timed else 0.0)
        return Excess(share, before, now, tokens, fitted.by_load)
    by_means = _by_means(window, baseline, (now, before), grown, load_now.cost, host_share)
    return None if by_means is None else Excess(by_means, before, now, tokens)


def _by_fit(fitted: step_model.Beyond, grown: float, cost: PairCost, host: Share, all_late: float) -> Share:
    """`grown`: pairs per second of step time that the busiest rank reads more than in the past; `all_late`: share of step time that hosts
    take which the device's timer does not see and nobody waits for."""
    mid = fitted.share + all_late - (0.0 if fitted.timed else host.mid)
    spare = step_model.ERRORS * fitted.error + (0.0 if fitted.timed else host.high - host.mid)
    costs = sorted(grown * (s - cost.mid) for s in (cost.low, cost.high))
    return Share(min(1.0, mid), min(1.0, mid - spare - costs[1]), min(1.0, mid + spare - costs[0]))


def _all_late(window: Window, baseline: Window) -> float:
    """The share of step time by which all hosts are later than in the past, alike; 0 where that is not known."""
    now, before, step = lockstep.unwaited(window), lockstep.unwaited(baseline), lockstep.active_step(window)
    return 0.0 if now is None or before is None or not step else max(0.0, now - before) / step


def _by_means(window: Window, baseline: Window, cadences: tuple[float, float], grown: float, cost: PairCost, host: Share) -> Share | None:
    now, before = cadences
    drag_now, drag_before = prefill.prefill_load(window), prefill.prefill_load(baseline)
    if drag_now is None or drag_before is None:
        return None
    dragged = drag_now.drag * now - drag_before.drag * before
    costs = sorted(grown * s for s in (cost.low, cost.high))
    rise = now - before - dragged
    return Share(
        (rise - grown * cost.mid - host.mid * now) / now,
        (rise - costs[1] - host.high * now) / now,
        (rise - costs[0] - host.low * now) / now,
    )


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b is not None and b > lockstep.LEAST_RATE else None
