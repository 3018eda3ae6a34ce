"""Load snapshots: what each rank publishes about itself, over one shared-memory file that nobody waits on.

Every rank owns one slot of the file and overwrites it; readers copy slots. A slot is a checksum, a length and a msgpack
payload. A reader accepts a slot only when the checksum matches, so a copy taken in the middle of a write is seen as torn
whatever order the two processes' stores become visible in, and no lock is needed: a stuck rank can never block a reader.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from pathlib import Path
from typing import Literal

import msgspec

SLOT_BYTES = 4096  # one page per rank; a full payload is about 400 bytes
_HEAD = struct.Struct("<II")  # crc32 of the payload, its length in bytes
_TRIES = 4  # a write takes about a microsecond: a second copy is nearly always whole


class MemorySection(msgspec.Struct, frozen=True, array_like=True):
    """What one card's memory is used for, GB of the whole card per kind; `token_capacity` in tokens of KV cache."""

    weight_gb: float
    kv_cache_gb: float
    graph_gb: float
    token_capacity: int


class SpeculativeSection(msgspec.Struct, frozen=True, array_like=True):
    """Speculative decoding: tokens accepted per verify step, and the accepted share of drafted tokens (0 to 1)."""

    accept_length: float
    accept_rate: float


class LoraSection(msgspec.Struct, frozen=True, array_like=True):
    """Adapter slots in use and in total; `utilization` is their ratio."""

    slots_used: int
    slots_total: int
    utilization: float


class DisaggregationSection(msgspec.Struct, frozen=True, array_like=True):
    """Queues between prefill and decode, in requests, and the last KV transfer (GB/s, ms). `"null"` is a string: not split."""

    mode: Literal["null", "prefill", "decode"] = "null"
    prefill_bootstrap_queue_reqs: int = 0
    prefill_inflight_queue_reqs: int = 0
    decode_prealloc_queue_reqs: int = 0
    decode_transfer_queue_reqs: int = 0
    decode_retracted_queue_reqs: int = 0
    kv_transfer_speed_gb_s: float = 0.0
    kv_transfer_latency_ms: float = 0.0


class QueuesSection(msgspec.Struct, frozen=True, array_like=True):
    """Requests per queue; `retracted` counts the last report window only."""

    waiting: int = 0
    grammar: int = 0
    paused: int = 0
    retracted: int = 0
    prealloc_ready: int = 0


class LoadSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rank's load at `timestamp`. Names, order, units and rounding are those of SGLang 0.5.23's `/v1/loads`.

    The order of the fields is the order on the page. A section that is None is not on the page.
    """

    timestamp: float = 0.0  # unix seconds when built; 0.0: the rank has a slot and never published
    dp_rank: int = 0
    num_running_reqs: int = 0  # the decode batch
    num_waiting_reqs: int = 0
    num_waiting_uncached_tokens: int = 0  # prompt tokens still to prefill, the rest of a chunked request included
    num_used_tokens: int = 0  # KV tokens held by live requests
    num_total_tokens: int = 0  # used, plus the lengths of queued requests: what `total_tokens` routing reads
    num_active_tokens: int = 0  # total, less what waits for a KV transfer
    num_prealloc_ready_tokens: int = 0
    max_total_num_tokens: int = 0  # KV capacity, tokens
    max_running_requests: int = 0
    token_usage: float = 0.0  # used share of the KV pool, 0 to 1; 4 decimals on the page
    gen_throughput: float = 0.0  # tokens/s of the last decode log window; 2 decimals on the page
    cache_hit_rate: float = 0.0  # of the last prefill report, 0 to 1
    utilization: float = 0.0  # dead: 0, or -1 on a prefill server
    total_prefill_uncached_tokens: int = 0  # cumulative
    total_prefill_busy_us: int = 0  # cumulative wall time of prefill steps, microseconds
    # cumulative sums over contiguous decode steps: n, b, t, b*b, b*t, g; b batch size, t launch-to-launch gap in
    # microseconds, g generated tokens. None until the first pair of contiguous steps.
    decode_moments: tuple[float, float, float, float, float, float] | None = None

    memory: MemorySection | None = None
    speculative: SpeculativeSection | None = None
    lora: LoraSection | None = None
    disaggregation: DisaggregationSection | None = None
    queues: QueuesSection | None = None

    def __post_init__(self) -> None:
        # here and not on the page, so that the router and a scraper read the same number
        msgspec.structs.force_setattr(self, "token_usage", round(self.token_usage, 4))
        msgspec.structs.force_setattr(self, "gen_throughput", round(self.gen_throughput, 2))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LoadSnapshot)


class SnapshotWriter:
    """One rank's pen. Creating it publishes the zero snapshot, as SGLang's schedulers do when they start."""

    def __init__(self, path: Path | str, ranks: int, rank: int) -> None:
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} is not one of {ranks} ranks")
        self._rank = rank
        self._offset = rank * SLOT_BYTES
        size = ranks * SLOT_BYTES
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, size)  # every writer asks for the same size: only the first changes anything
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.write(LoadSnapshot(dp_rank=rank))

    def write(self, snapshot: LoadSnapshot) -> None:
        """Replaces this rank's snapshot. Never waits."""
        if snapshot.dp_rank != self._rank:
            raise ValueError(f"a snapshot of rank {snapshot.dp_rank} was given to the writer of rank {self._rank}")
        payload = _encoder.encode(snapshot)
        whole = _HEAD.pack(zlib.crc32(payload), len(payload)) + payload
        if len(whole) > SLOT_BYTES:
            raise ValueError(f"a snapshot of {len(whole)} bytes does not fit a slot of {SLOT_BYTES}")
        self._map[self._offset : self._offset + len(whole)] = whole

    def close(self) -> None:
        self._map.close()


class SnapshotReader:
    """Copies the ranks' snapshots. Never waits; opens the file when it first exists."""

    def __init__(self, path: Path | str, ranks: int) -> None:
        self._path = path
        self._ranks = ranks
        self._map: mmap.mmap | None = None

    def read(self, rank: int) -> LoadSnapshot | None:
        """The rank's latest snapshot; None when it has no slot yet, when the slot is torn, or when there is no such rank."""
        mapped = self._map or self._open()
        if mapped is None or not 0 <= rank < self._ranks:
            return None
        start = rank * SLOT_BYTES
        for _ in range(_TRIES):
            crc, length = _HEAD.unpack_from(mapped, start)
            payload = mapped[start + _HEAD.size : start + _HEAD.size + min(length, SLOT_BYTES - _HEAD.size)]
            if payload and zlib.crc32(payload) == crc:  # no payload: the slot's writer does not exist yet
                return _decoder.decode(payload)
        return None

    def read_all(self) -> list[LoadSnapshot]:
        """Every readable rank, ascending. Ranks without a readable slot are left out."""
        return [snapshot for rank in range(self._ranks) if (snapshot := self.read(rank)) is not None]

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def _open(self) -> mmap.mmap | None:
        size = self._ranks * SLOT_BYTES
        try:
            fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if os.fstat(fd).st_size < size:  # created, not yet given its size
                return None
            self._map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        return self._map
