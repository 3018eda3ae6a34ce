"""Chunks as Prometheus stores and sends them: read back exactly, and nothing else is taken for one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
from collections.abc import Sequence

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.prometheus import remote, xor
from collector.prometheus.api import Api, Server
from collector.prometheus.fetch import Known
from collector.prometheus.matchers import Matcher
from collector.prometheus.matrix import Series
from collector.prometheus.read import Scope, read

Samples = list[tuple[int, float]]


class Bits:
    """Writes as tsdb/chunkenc/xor.go of Prometheus does, one sample after the other."""

    def __init__(self) -> None:
        self.bits: list[str] = []

    def put(self, value: int, width: int) -> None:
        self.bits.append(format(value & ((1 << width) - 1), f"0{width}b"))

    def number(self, value: int) -> None:
        while value >= 0x80:
            self.put(value & 0x7F | 0x80, 8)
            value >>= 7
        self.put(value, 8)

    def done(self) -> bytes:
        text = "".join(self.bits)
        text += "0" * (-len(text) % 8)
        return bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))


def chunk(samples: Samples) -> bytes:
    out = Bits()
    out.put(len(samples), 16)
    before, step, lead, trail = 0, 0, -1, 0
    for k, (at, value) in enumerate(samples):
        (bits,) = struct.unpack(">Q", struct.pack(">d", value))
        if k == 0:
            out.number(2 * at)  # zigzag of what is not negative
            out.put(bits, 64)
            before = bits
            continue
        moved = at - samples[k - 1][0]
        if k == 1:
            out.number(moved)
        else:
            change = moved - step
            for mark, width, room in (("0", 0, 0), ("10", 14, 1 << 13), ("110", 17, 1 << 16), ("1110", 20, 1 << 19), ("1111", 64, 1 << 63)):
                if (width == 0 and change == 0) or (width > 0 and -room < change <= room):
                    out.put(int(mark, 2), len(mark))
                    if width:
                        out.put(change, width)
                    break
        step = moved
        differs = bits ^ before
        before = bits
        out.put(int(differs != 0), 1)
        if differs:
            zeros, last = min(64 - differs.bit_length(), 31), (differs & -differs).bit_length() - 1
            if lead >= 0 and zeros >= lead and last >= trail:
                out.put(0, 1)
            else:
                lead, trail = zeros, last
                out.put(1, 1)
                out.put(lead, 5)
                out.put(64 - lead - trail, 6)
            out.put(differs >> trail, 64 - lead - trail)
    return out.done()


steps = st.one_of(st.sampled_from([15_000, 15_000, 15_001, 14_999, 1]), st.integers(0, 1 << 40))
values = st.one_of(st.sampled_from([0.0, 1.0, 1.0, 12.5]), st.floats())


@st.composite
def runs(draw: st.DrawFn) -> Samples:
    """Samples of one chunk, their times rising."""
    at, found = draw(st.integers(0, 1 << 42)), []
    for _ in range(draw(st.integers(0, 12))):
        found.append((at, draw(values)))
        at += draw(steps)
    return found


@settings(deadline=None)  # speed is not what is tested
@given(st.lists(runs(), max_size=6))
def test_chunks_of_any_length_are_read_together_as_each_alone(chunks: list[Samples]) -> None:
    """Times to the millisecond, values to the bit; no number and infinity as in a JSON reply."""
    times, found, edges = xor.decode([chunk(samples) for samples in chunks])
    for samples, first, last in zip(chunks, edges, edges[1:], strict=False):
        kept = [(at, value) for at, value in samples if not math.isnan(value)]
        assert times[first:last].tolist() == [at for at, _ in kept]
        assert found[first:last].tolist() == [value if math.isfinite(value) else math.inf for _, value in kept]


@settings(deadline=None)  # speed is not what is tested
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_damaged_chunks_are_refused_or_read(chunks: list[bytes]) -> None:
    """Whatever bytes they are: never another error, never a read beyond them."""
    try:
        times, found, _ = xor.decode(chunks)
    except (ValueError, IndexError):
        return
    assert len(times) == len(found)


def test_a_count_that_no_chunk_has_is_refused() -> None:
    """Before memory is taken for it."""
    with pytest.raises(ValueError, match="65535 samples"):
        xor.decode([b"\xff\xff" + chunk(A)[2:]])


def field(number: int, value: bytes) -> bytes:
    assert len(value) < 1 << 14
    size = bytes([len(value)]) if len(value) < 0x80 else bytes([len(value) & 0x7F | 0x80, len(value) >> 7])
    return bytes([number << 3 | 2]) + size + value


def frame(labels: dict[str, str], chunks: Sequence[bytes], encoding: int = 1) -> bytes:
    """One series as the server streams it."""
    told = b"".join(field(1, field(1, name.encode()) + field(2, value.encode())) for name, value in labels.items())
    held = b"".join(field(2, bytes([1 << 3, 0, 2 << 3, 0, 3 << 3, encoding]) + field(4, one)) for one in chunks)
    message = field(1, told + held)
    size = bytes([len(message)]) if len(message) < 0x80 else bytes([len(message) & 0x7F | 0x80, len(message) >> 7])
    return size + b"\0\0\0\0" + message


A, B = ([(at, float(at)) for at in range(first, first + 60_000, 15_000)] for first in (1_000_000, 1_060_000))


def test_a_series_in_several_frames_is_one() -> None:
    """Its chunks are joined, cut to the time that was asked for; native histograms are left out."""
    body = frame({"__name__": "x"}, [chunk(A)]) + frame({"__name__": "y"}, [b"\0\1zz"], 2) + frame({"__name__": "x"}, [chunk(B)])
    (found,) = remote.series(body, 1015.0, 1075.0)
    assert found.labels == {"__name__": "x"}
    assert found.times.tolist() == [1015.0, 1030.0, 1045.0, 1060.0, 1075.0]
    assert found.values.tolist() == [1_015_000.0, 1_030_000.0, 1_045_000.0, 1_060_000.0, 1_075_000.0]


def test_chunks_of_a_version_to_come_are_refused() -> None:
    """What cannot be unpacked is not left out silently: the query goes to the query API instead."""
    with pytest.raises(ValueError, match="encoding 4"):
        remote.series(frame({"__name__": "x"}, [chunk(A)], 4), 0.0, 9e9)


def test_chunks_that_overlap_give_each_moment_once() -> None:
    """As where a block and the newest samples hold the same hour."""
    (found,) = remote.series(frame({"a": "b" * 200}, [chunk(A), chunk(A), chunk(B)]), 0.0, 9e9)
    assert found.times.tolist() == [at / 1000 for at, _ in (*A, *B)]
    assert found.labels == {"a": "b" * 200}


def test_a_request_is_what_the_protocol_says() -> None:
    """Byte by byte, of one matcher: field 1 the query (times in ms, matchers), field 2 the wish for chunks; packed by not packing."""
    query = b"\x08\xe8\x07" + b"\x10\xd0\x0f" + field(3, b"\x08\x02" + field(2, b"job") + field(3, b"a|b"))
    whole = field(1, query) + b"\x10\x01"
    assert remote.request([Matcher("job", "=~", "a|b")], 1.0, 2.0) == bytes([len(whole), 61 << 2, len(whole) - 1, 0]) + whole


@settings(deadline=None)  # speed is not what is tested
@given(st.binary(max_size=80))
def test_any_stream_is_an_error_or_an_answer(body: bytes) -> None:
    """Whatever a proxy sends under the right content type."""
    with contextlib.suppress(ValueError, IndexError):
        assert isinstance(remote.series(body, 0.0, 1.0), list)


def series(**labels: str) -> Series:
    return Series(labels, np.zeros(1), np.zeros(1))


def test_external_labels_are_taken_off() -> None:
    """Remote read puts them on each series; where a target has a label of that name it cannot be told which is which."""
    own = {"__name__": "x", "instance": "n:1"}
    assert Known([own]).own([series(**own, cluster="eu", replica="a")]) == [series(**own)]
    assert Known([own, {**own, "instance": "n:2", "cluster": "eu"}]).own([series(**own, cluster="eu")]) is None


CPU = {"__name__": "sglang:scheduler_process_cpu_seconds_total", "model_name": "m", "engine_type": "unified", "instance": "n:1"}
RANKS = [{**CPU, "dp_rank": str(rank), "tp_rank": str(rank)} for rank in (0, 1)]
TIMES = [1000.0 + 15 * k for k in range(41)]


@pytest.mark.parametrize("trouble", ["", "403", "404", "breaks", "cut off", "samples", "strangers"])
def test_what_remote_read_does_not_give_json_does(trouble: str) -> None:
    """The same window from a server that streams chunks, from one that has or allows no such thing, that fails at it, whose stream is
    damaged, that sends samples instead, and whose external label is a target's own elsewhere."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path.rpartition("/")[2])
        if asked[-1] == "series":
            elsewhere = [{**RANKS[0], "instance": "n:2", "job": "eu"}] if trouble == "strangers" else []
            return httpx.Response(200, json={"status": "success", "data": [*RANKS, *elsewhere]})
        if asked[-1] == "read":
            if trouble.isdigit():
                return httpx.Response(int(trouble))
            kind = remote.REPLY_TYPE + "; proto=prometheus.ChunkedReadResponse"
            if b"none" in request.content:
                return httpx.Response(200, headers={"content-type": "application/x-protobuf" if trouble == "samples" else kind})
            if trouble == "breaks":
                return httpx.Response(500, text="storage: not now")
            more = {"job": "eu"} if trouble == "strangers" else {"region": "eu"}
            counted = [chunk([(round(at * 1000), at) for at in TIMES])]
            body = b"".join(frame({**labels, **more}, counted) for labels in RANKS)
            return httpx.Response(200, headers={"content-type": kind}, content=body[:-9] if trouble == "cut off" else body)
        if b"max%28" in request.content:
            return httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": []}})
        rows = [{"metric": labels, "values": [[at, str(at)] for at in TIMES]} for labels in RANKS]
        return httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": rows}})

    async def go() -> tuple[float, ...]:
        async with Api(Server("http://p"), transport=httpx.MockTransport(answer)) as api:
            windows = (await read(api, Scope(1000.0, 1600.0))).windows
            return tuple(value for window in windows if window.ranks == (0, 1) for value in window.mean("scheduler_cpu").tolist())

    assert asyncio.run(go()) == pytest.approx((1.0, 1.0))
    assert asked.count("query") == (2 if trouble else 1)
