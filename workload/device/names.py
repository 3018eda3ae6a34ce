"""What a page calls each device: nobody shall take a virtual card for a real one."""

from __future__ import annotations

from workload.config import DeviceKind


def accelerator(kind: DeviceKind) -> str:
    return {"virtual": "NVIDIA H20-3e (virtual)", "cpu": "CPU (numpy)"}[kind]
