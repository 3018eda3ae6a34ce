"""For tests only, inside vLLM 0.32's processes on a CPU.

Experts over several data-parallel ranks need two collectives of unequal parts that the CPU build does not have: equal ones stand in.
SLOWRANK_SLOW_RANK and SLOWRANK_SLOW_MS make each forward of one rank later by so many milliseconds.
"""

from __future__ import annotations

import os
import time
from typing import Any


def register() -> None:
    """What vLLM calls in each of its processes."""
    import torch
    import torch.distributed as dist
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    def parts_of(group: Any, rows: int, sizes: list[int] | None) -> list[int]:
        return [rows] * group.world_size if sizes is None else list(sizes)

    def all_gatherv(self: Any, tensor: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
        """All parts one after the other, each as long as its rank's: gathered at the longest's length and cut."""
        if isinstance(tensor, list):
            return [all_gatherv(self, one, dim, sizes) for one in tensor]
        lengths = parts_of(self, tensor.shape[0], sizes)
        padded = tensor.new_zeros((max(lengths), *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        gathered = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(gathered, padded, group=self.device_group)
        return torch.cat([part[:length] for part, length in zip(gathered, lengths, strict=True)])

    def reduce_scatterv(self: Any, tensor: Any, dim: int = -1, sizes: list[int] | None = None) -> Any:
        """This rank's part of the sum over all ranks."""
        lengths = parts_of(self, tensor.shape[0] // self.world_size, sizes)
        whole = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole, group=self.device_group)
        start = sum(lengths[: self.rank_in_group])
        return whole[start : start + lengths[self.rank_in_group]].clone()

    CpuCommunicator.all_gatherv = all_gatherv
    CpuCommunicator.reduce_scatterv = reduce_scatterv

    rank, delay = os.environ.get("SLOWRANK_SLOW_RANK"), float(os.environ.get("SLOWRANK_SLOW_MS", "0")) / 1000
    forward = CPUModelRunner._model_forward
    if rank is None or getattr(forward, "slowed", False):
        return

    def slowed(self: Any, *arguments: Any, **named: Any) -> Any:
        if str(self.parallel_config.data_parallel_index) == rank:
            time.sleep(delay)
        return forward(self, *arguments, **named)

    slowed.slowed = True  # type: ignore[attr-defined]
    CPUModelRunner._model_forward = slowed
