"""The device of real cards: refused where there are none, right on torch's CPU backend where torch is, and a script that is ready to run.

Nothing here has a GPU. What needs torch is skipped where torch is not installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from workload import labels
from workload.cluster import Cluster
from workload.config import ClusterConfig
from workload.device import Work, cuda
from workload.nursery import ClusterError

ROOT = Path(__file__).parents[2]
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_the_device_is_refused_with_the_command_that_installs_it():
    """Before any process starts, and with the alternatives."""
    cluster = Cluster(ClusterConfig(ranks=2, device="cuda"))
    with pytest.raises(ClusterError, match=r"needs torch.*pip install 'slowrank\[gpu\]'.*device 'virtual' or 'cpu'"):
        cluster.start()
    assert cluster._nursery is None


def test_without_a_card_the_device_is_refused(monkeypatch):
    """torch that finds no card, as on a machine without a driver."""

    class Torch:
        class cuda:  # noqa: N801  # torch's own name
            @staticmethod
            def is_available() -> bool:
                return False

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert cuda.refusal() == (
        "device 'cuda': torch finds no CUDA card on this machine; see what nvidia-smi says, or use device 'virtual' or 'cpu'"
    )


def test_a_page_says_when_ranks_share_a_card(monkeypatch):
    """The driver's name, with the sharing where there are fewer cards than ranks."""

    class Torch:
        class cuda:  # noqa: N801
            @staticmethod
            def device_count() -> int:
                return 4

            @staticmethod
            def get_device_name(index: int) -> str:
                return "NVIDIA H200"

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert cuda.card_name(4) == "NVIDIA H200"
    assert cuda.card_name(8) == "NVIDIA H200 (shared by 8 ranks)"


def counted(real, seen, what):
    """`real`, which also keeps what it was asked for."""

    def call(*operands):
        seen.append(what(*operands))
        return real(*operands)

    return call


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_attention_reads_as_many_rows_as_there_are_pairs(monkeypatch):
    """13 layers a group: 13 times the pairs, in order through the KV tensor and round its end."""
    import torch

    kernels = cuda.TorchKernels(torch.device("cpu"), (2, 8, 8), kv_rows=1000)
    read: list[int] = []
    real = torch.mv
    monkeypatch.setattr(torch, "mv", counted(real, read, lambda kv, query: len(kv)))
    kernels.attention(Work(decode_tokens=1, decode_pairs=1700))
    assert sum(read) == 13 * 1700
    assert kernels._kv[0].numel() * kernels._kv.element_size() == 576


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_a_prefill_scores_its_pairs(monkeypatch):
    """64 tokens with 2,048 keys each: 131,072 pairs of 8,192 FLOP in each of 13 layers."""
    import torch

    kernels = cuda.TorchKernels(torch.device("cpu"), (2, 8, 8), kv_rows=100)
    flops: list[int] = []
    real = torch.mm
    monkeypatch.setattr(torch, "mm", counted(real, flops, lambda a, b: 2 * a.shape[0] * a.shape[1] * b.shape[1]))
    kernels.attention(Work(prefill_tokens=64, prefill_pairs=64 * 2048))
    assert sum(flops) == 13 * 64 * 2048 * 8192


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_experts_multiply_their_rows_and_need_no_rows(monkeypatch):
    """Rows spread evenly over the card's experts; one row each at least, as a kernel that is launched reads the weights anyway."""
    import torch

    kernels = cuda.TorchKernels(torch.device("cpu"), (4, 8, 8), kv_rows=100)
    shapes: list[tuple[int, ...]] = []
    real = torch.bmm
    monkeypatch.setattr(torch, "bmm", counted(real, shapes, lambda a, b: tuple(a.shape)))
    kernels.experts(40, decode=True)
    kernels.experts(0, decode=True)
    assert shapes == [(4, 10, 8)] * 13 + [(4, 1, 8)] * 13
    assert not kernels.exchange([1, 1])  # a card that is shared meets through the host
    kernels.finish()
    assert kernels.span() is None


PEER = """
import sys
from pathlib import Path
import torch
from workload.device import cuda
rank = int(sys.argv[1])
cuda.join("gloo", rank, 2, Path(sys.argv[2]))
kernels = cuda.TorchKernels(torch.device("cpu"), (2, 8, 8), ranks=2, kv_rows=100)
assert kernels.exchange([6, 2])
torch.distributed.barrier()
print(len(kernels._copies))
"""


@pytest.mark.cluster
@pytest.mark.beside(row=3)
@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_cards_of_their_own_exchange_copies(tmp_path):
    """Two processes, uneven rows: each sends 3 + 1 copies; card 0 receives 3 + 3, card 1 receives 1 + 1. (gloo stands in for NCCL.)"""
    peers = [
        subprocess.Popen([sys.executable, "-c", PEER, str(rank), str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for rank in range(2)
    ]
    assert [int(peer.communicate(timeout=60)[0]) for peer in peers] == [6, 4]


@pytest.mark.cluster
@pytest.mark.beside(row=3)
def test_the_gpu_script_passes_its_dry_run(tmp_path):
    """The same path on the CPU: four captures named after the device, three labels, and a word that no figure is a GPU's."""
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu_run.py", "--dry-run", "--seconds", "1.5", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scenarios = ["context_length_skew", "expert_hotspot", "healthy", "slow_rank"]
    assert sorted(p.name for p in tmp_path.glob("*.slowrank")) == [f"{name}-cpu-numpy.slowrank" for name in scenarios]
    assert [label.fault for label in labels.read(tmp_path / "labels.jsonl")] == ["context_length_skew", "slow_rank", "expert_hotspot"]
    assert "no figure above is a GPU's" in done.stdout


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_the_gpu_script_refuses_a_machine_without_torch(tmp_path):
    """Exit 2 and the reason, before anything starts."""
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu_run.py", "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "needs torch" in done.stderr
    assert list(tmp_path.iterdir()) == []
