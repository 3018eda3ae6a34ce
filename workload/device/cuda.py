"""Real cards, through torch, which is imported only when one is asked for.

Attention reads as many bytes of a KV tensor as a decode step's pairs have (576 a pair and layer); experts are grouped GEMM over weights
that are read in every layer; a step's span comes from CUDA events. With a card per rank the cards exchange token copies by NCCL and wait
for each other there. With fewer cards than ranks all ranks share card 0: their kernels contend for it, and they meet through the host.

Written against torch's documented interface, and run on torch's CPU backend; it has not been run on a GPU yet.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from workload.device import Work

_LAYERS = 78
_GROUPS = 6  # of 13 layers: twelve meets a step, which through the host cost some 0.2 ms each
_KV_WIDTH = 288  # BF16 numbers: the 576 bytes of one pair in one layer
_KV_ROWS = 1 << 21  # 1.2 GB: more than any cache holds, and eight of them fit on one card
_INDEX_HEADS, _INDEX_WIDTH = 32, 128  # what a prefill computes for a pair: two FLOP for each of 32 x 128
_KEYS = 1024  # index scores of so many keys at a time
_TOKENS = 8192  # of one prefill chunk at most; longer ones are computed in pieces
# (experts, in, out) of one layer. On a card of its own a rank reads 1 GiB a layer, 84 GB a step, as in the roofline; eight ranks on one
# card read 128 MiB each and share its bandwidth.
_OWN = (32, 4096, 4096)
_SHARED = (16, 2048, 2048)
_COPY_WIDTH = 6144  # BF16 numbers that a token copy takes on its way to an expert, and back

INSTALL = "pip install 'slowrank[gpu]'"


def refusal() -> str | None:
    """Why no cluster can run on this machine's cards; None when it can. Imports torch if that is installed."""
    if importlib.util.find_spec("torch") is None:
        return f"device 'cuda' needs torch, which is not installed; {INSTALL}, or use device 'virtual' or 'cpu'"
    import torch

    if not torch.cuda.is_available():
        return "device 'cuda': torch finds no CUDA card on this machine; see what nvidia-smi says, or use device 'virtual' or 'cpu'"
    return None


def own_cards(ranks: int) -> bool:
    """Whether every rank has a card of its own."""
    import torch

    return int(torch.cuda.device_count()) >= ranks


def card_name(ranks: int) -> str:
    """What a page calls the device: the driver's name of card 0, and that ranks share it if they do."""
    import torch

    name = str(torch.cuda.get_device_name(0))
    return name if own_cards(ranks) else f"{name} (shared by {ranks} ranks)"


def card_uuids(ranks: int) -> list[str]:
    """The driver's names of the cards in use, without their prefix, in the order of the ranks; one where all share card 0."""
    import torch

    return [str(torch.cuda.get_device_properties(card).uuid) for card in range(ranks if own_cards(ranks) else 1)]


def kernels(rank: int, ranks: int, workdir: Path) -> TorchKernels:
    """One rank's kernels, on its own card or on the one that all share. `workdir` is where ranks find each other."""
    import torch

    if not own_cards(ranks):
        return TorchKernels(torch.device("cuda", 0), _SHARED)
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    join("nccl", rank, ranks, workdir)
    return TorchKernels(device, _OWN, ranks=ranks)


def join(backend: str, rank: int, ranks: int, workdir: Path) -> None:
    """Makes this process one of a group of `ranks` that exchange data by `backend`."""
    import torch.distributed

    torch.distributed.init_process_group(backend, init_method=f"file://{workdir / 'cards'}", rank=rank, world_size=ranks)


class TorchKernels:
    """One card's work in torch. `ranks` 0: the cards cannot reach each other, and meet through the host."""

    groups = _GROUPS

    def __init__(self, device: Any, experts: tuple[int, int, int], *, ranks: int = 0, kv_rows: int = _KV_ROWS) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._ranks = ranks
        kinds: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
        self._kv = torch.ones((kv_rows, _KV_WIDTH), **kinds)
        self._query = torch.ones(_KV_WIDTH, **kinds)
        self._weights = torch.ones(experts, **kinds)
        self._keys = torch.ones((_INDEX_WIDTH, _KEYS), **kinds)
        self._copies = torch.ones((0, _COPY_WIDTH), **kinds)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else None
        self._at = 0

    def begin(self) -> None:
        if self._events is not None:
            self._events[0].record()

    def attention(self, work: Work) -> None:
        for _ in range(_LAYERS // _GROUPS):
            self._read(work.decode_pairs)
            self._index(work.prefill_tokens, work.prefill_pairs)

    def experts(self, rows: int, *, decode: bool) -> None:  # noqa: ARG002  # small batches are slower per row by themselves here
        experts, width, _ = self._weights.shape
        x = self._torch.ones((experts, max(1, rows // experts), width), dtype=self._weights.dtype, device=self._device)
        for _ in range(_LAYERS // _GROUPS):
            self._torch.bmm(x, self._weights)

    def exchange(self, rows: list[int]) -> bool:
        """All-to-all of a share of each card's copies from every card, for each layer of the group."""
        if not self._ranks:
            return False
        rank = self._torch.distributed.get_rank()
        sent = [max(1, n // self._ranks) for n in rows]  # from this card to each
        received = [sent[rank]] * self._ranks
        if len(self._copies) < (most := max(sum(sent), sum(received))):
            self._copies = self._torch.ones((most, _COPY_WIDTH), dtype=self._copies.dtype, device=self._device)
        target = self._torch.empty((sum(received), _COPY_WIDTH), dtype=self._copies.dtype, device=self._device)
        for _ in range(_LAYERS // _GROUPS):
            self._torch.distributed.all_to_all_single(target, self._copies[: sum(sent)], received, sent)
        return True

    def finish(self) -> None:
        if self._events is None:
            return
        self._events[1].record()
        self._events[1].synchronize()

    def span(self) -> float | None:
        """Valid after `finish`."""
        return None if self._events is None else float(self._events[0].elapsed_time(self._events[1])) / 1e3

    def _read(self, pairs: int) -> None:
        """Reads so many rows of the KV tensor, beginning where the last layer stopped, so that no cache has them."""
        while pairs > 0:
            if self._at >= len(self._kv):
                self._at = 0
            rows = min(pairs, len(self._kv) - self._at)
            self._torch.mv(self._kv[self._at : self._at + rows], self._query)
            self._at += rows
            pairs -= rows

    def _index(self, tokens: int, pairs: int) -> None:
        """Scores of a prefill's tokens against their contexts: `pairs` of them, 8,192 FLOP each."""
        while tokens > 0:
            piece = min(tokens, _TOKENS)
            keys = pairs * piece // tokens // piece
            queries = self._torch.ones((piece * _INDEX_HEADS, _INDEX_WIDTH), dtype=self._keys.dtype, device=self._device)
            for start in range(0, keys, _KEYS):
                self._torch.mm(queries, self._keys[:, : min(_KEYS, keys - start)])
            pairs -= keys * piece
            tokens -= piece
