"""Snapshots cross processes whole or not at all, and nobody waits for anybody."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from workload.face.loads import (
    SLOT_BYTES,
    DisaggregationSection,
    LoadSnapshot,
    LoraSection,
    MemorySection,
    QueuesSection,
    SnapshotReader,
    SnapshotWriter,
    SpeculativeSection,
)

FULL = LoadSnapshot(
    timestamp=1795996805.3795772,
    dp_rank=1,
    num_running_reqs=52,
    num_waiting_reqs=7,
    num_waiting_uncached_tokens=14336,
    num_used_tokens=201344,
    num_total_tokens=217216,
    num_active_tokens=217216,
    num_prealloc_ready_tokens=3,
    max_total_num_tokens=449792,
    max_running_requests=256,
    token_usage=0.4476,
    gen_throughput=1893.27,
    cache_hit_rate=0.4133,
    utilization=-1.0,
    total_prefill_uncached_tokens=18834432,
    total_prefill_busy_us=412339114,
    decode_moments=(88123.0, 4273944.0, 2423382500.0, 211382204.0, 118120392000.0, 4273944.0),
    memory=MemorySection(84.213, 28.667, 2.114, 449792),
    speculative=SpeculativeSection(2.5, 0.75),
    lora=LoraSection(1, 4, 0.25),
    disaggregation=DisaggregationSection("decode", decode_prealloc_queue_reqs=2),
    queues=QueuesSection(7, 0, 0, 1, 2),
)


def test_a_snapshot_arrives_as_it_was_written(tmp_path: Path) -> None:
    """Every field and every section."""
    writer, reader = SnapshotWriter(tmp_path / "loads", 2, 1), SnapshotReader(tmp_path / "loads", 2)
    writer.write(FULL)
    assert reader.read(1) == FULL
    writer.write(LoadSnapshot(timestamp=5.0, dp_rank=1))  # shorter than what the slot held
    assert reader.read(1) == LoadSnapshot(timestamp=5.0, dp_rank=1)
    writer.close()
    reader.close()


def test_no_file_means_no_ranks_until_it_appears(tmp_path: Path) -> None:
    """A reader made before the ranks finds them when they come."""
    reader = SnapshotReader(tmp_path / "loads", 2)
    assert reader.read_all() == []
    assert reader.read(0) is None
    (tmp_path / "loads").touch()  # created, without its size yet
    assert reader.read_all() == []
    writer = SnapshotWriter(tmp_path / "loads", 2, 0)
    assert [snapshot.dp_rank for snapshot in reader.read_all()] == [0]
    writer.close()
    reader.close()


def test_a_rank_that_never_published_is_all_zeros_with_timestamp_0(tmp_path: Path) -> None:
    """A slot exists from its writer on; a slot without a writer is left out."""
    writers = [SnapshotWriter(tmp_path / "loads", 4, rank) for rank in (2, 0)]
    reader = SnapshotReader(tmp_path / "loads", 4)
    assert reader.read_all() == [LoadSnapshot(), LoadSnapshot(dp_rank=2)]
    assert LoadSnapshot().timestamp == 0.0
    assert LoadSnapshot().decode_moments is None
    for writer in writers:
        writer.close()
    reader.close()


@pytest.mark.parametrize("rank", [-1, 2, 9])
def test_there_is_no_such_rank(tmp_path: Path, rank: int) -> None:
    """A reader says nothing, a writer is refused."""
    SnapshotWriter(tmp_path / "loads", 2, 0).close()
    reader = SnapshotReader(tmp_path / "loads", 2)
    assert reader.read(rank) is None
    reader.close()
    with pytest.raises(ValueError, match=f"rank {rank} is not one of 2 ranks"):
        SnapshotWriter(tmp_path / "loads", 2, rank)


def test_a_rank_cannot_write_for_another(tmp_path: Path) -> None:
    """It would hide the other one's silence."""
    writer = SnapshotWriter(tmp_path / "loads", 2, 1)
    with pytest.raises(ValueError, match="a snapshot of rank 0 was given to the writer of rank 1"):
        writer.write(LoadSnapshot(dp_rank=0))
    writer.close()


def test_a_restarted_rank_starts_from_zeros_and_leaves_the_others_alone(tmp_path: Path) -> None:
    """As a restarted scheduler does."""
    first, other = SnapshotWriter(tmp_path / "loads", 2, 1), SnapshotWriter(tmp_path / "loads", 2, 0)
    other.write(LoadSnapshot(timestamp=3.0, num_running_reqs=9))
    first.write(FULL)
    again = SnapshotWriter(tmp_path / "loads", 2, 1)
    reader = SnapshotReader(tmp_path / "loads", 2)
    assert reader.read_all() == [LoadSnapshot(timestamp=3.0, num_running_reqs=9), LoadSnapshot(dp_rank=1)]
    for writer in (first, other, again):
        writer.close()
    reader.close()


@pytest.mark.parametrize("at", [0, 4, 5, 8, 40, 100])
def test_a_slot_with_one_wrong_byte_is_not_a_snapshot(tmp_path: Path, at: int) -> None:
    """Checksum, length or payload: whichever part of a write has not arrived yet."""
    path = tmp_path / "loads"
    writer = SnapshotWriter(path, 2, 1)
    writer.write(FULL)
    writer.close()
    torn = bytearray(path.read_bytes())
    torn[SLOT_BYTES + at] ^= 0xFF
    path.write_bytes(torn)
    reader = SnapshotReader(path, 2)
    assert reader.read(1) is None
    reader.close()


WRITE_FOREVER = """
import sys
from workload.face.loads import LoadSnapshot, QueuesSection, SnapshotWriter
writer = SnapshotWriter(sys.argv[1], 2, 1)
print("writing", flush=True)
i = 0
while True:
    i += 1
    n = i if i % 2 else i << 20  # long and short payloads in turn
    writer.write(LoadSnapshot(timestamp=float(n), dp_rank=1, num_running_reqs=n, num_total_tokens=n, queues=QueuesSection(n, n, n, n, n)))
"""


def numbers(snapshot: LoadSnapshot) -> set[float]:
    """The values of all fields that WRITE_FOREVER sets: one value, if they are of one write."""
    queues = snapshot.queues or QueuesSection()
    return {snapshot.timestamp, snapshot.num_running_reqs, snapshot.num_total_tokens, *msgspec.structs.astuple(queues)}


def test_a_reader_beside_a_busy_writer_never_sees_half_a_write(tmp_path: Path) -> None:
    """Back-to-back writes in another process, read until 200 different ones were seen: each one's numbers are of one write."""
    path = tmp_path / "loads"
    seen: set[float] = set()
    until = time.monotonic() + 30
    with subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, str(path)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"writing\n"
            reader = SnapshotReader(path, 2)
            while len(seen) < 200 and time.monotonic() < until:
                snapshot = reader.read(1)
                if snapshot is not None:
                    assert len(numbers(snapshot)) == 1
                    seen.add(snapshot.timestamp)
            reader.close()
        finally:
            process.kill()
    assert len(seen) == 200


def test_the_page_never_shows_more_digits_than_sglang() -> None:
    """4 decimals of usage, 2 of throughput."""
    snapshot = LoadSnapshot(token_usage=201344 / 449792, gen_throughput=1893.274)
    assert (snapshot.token_usage, snapshot.gen_throughput) == (0.4476, 1893.27)
