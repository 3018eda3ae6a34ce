"""For tests only, inside vLLM 0.32's processes on a CPU.

Experts over several data-parallel ranks need two collectives of unequal parts that the CPU build does not have: equal ones stand in.
SLOWRANK_DELAY_FILE names a file that may be written while the engine serves: `1 60` makes each forward of rank 1 later by 60 ms, and an
empty file, or none, makes no forward later.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
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

    asked = os.environ.get("SLOWRANK_DELAY_FILE")
    forward = CPUModelRunner._model_forward
    if asked is None or getattr(forward, "slowed", False):
        return

    def slowed(self: Any, *arguments: Any, **named: Any) -> Any:
        time.sleep(delay_s(asked, self.parallel_config.data_parallel_index))
        return forward(self, *arguments, **named)

    slowed.slowed = True  # type: ignore[attr-defined]
    CPUModelRunner._model_forward = slowed


def delay_s(path: str, rank: int) -> float:
    """Seconds that the file asks this rank to be late by."""
    try:
        words = Path(path).read_text().split()
    except OSError:
        return 0.0
    return float(words[1]) / 1000 if len(words) == 2 and words[0] == str(rank) else 0.0
