"""Which faults a vLLM cluster cannot have."""

from __future__ import annotations

from workload.vllm.settings import VllmFlags

_NO_SNAPSHOTS = "vLLM publishes no load snapshots that could go stale"
_ALONE = "dense engines do not meet: there is no step that all share"
_NO_EXPERTS = "a dense model has no experts and sends no tokens between cards"
_ANY = {"stale_ledger": _NO_SNAPSHOTS}
_DENSE = {
    "dispatch_skew": _NO_EXPERTS,
    "expert_hotspot": _NO_EXPERTS,
    "link_degraded": _NO_EXPERTS,
    "idle_lockstep": _ALONE,
    "prefill_drags_decode": _ALONE,
}


def lacks(fault: str, flags: VllmFlags | None) -> str | None:
    """Why the cluster cannot have a fault that others can; None when it can, or is no vLLM cluster."""
    if flags is None:
        return None
    return _ANY.get(fault) or (None if flags.moe else _DENSE.get(fault))
