"""Messages between the processes of a cluster: msgpack frames with a length in front, over Unix sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from workload.config import ClusterConfig, Lengths
from workload.prefix import Segment

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


class PeerLostError(Exception):
    """The process at the other end is gone."""


class Submit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A request for a rank: tokens of prompt, how many of them the prefix cache holds, tokens to generate.

    `prefix` names what the prompt begins with, `keeps` what follows: then the rank's own cache tells what it holds.
    """

    rid: int
    prompt: int
    cached: int
    output: int
    prefix: tuple[Segment, ...] = ()
    keeps: str = ""


class Abort(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Forget these requests."""

    rids: list[int]


class Progress(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a rank has produced since it last told: requests with their first token, finished ones, and (gap s, tokens) pairs.

    `failed` ones end with an error.
    """

    first: list[int]
    finished: list[int]
    gaps: list[tuple[float, int]]
    failed: list[int] = []


class Launch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A rank has put step `step` on its card at `at` (monotonic seconds). `graph`: the step replays a captured decode graph."""

    step: int
    at: float
    decode_tokens: int
    decode_pairs: int
    prefill_tokens: int
    prefill_pairs: int
    graph: bool


class Done(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Step `step` has ended. `span` is first start to last end on this rank's card, seconds, waits for other cards included.

    `rows[l][r]` are the token copies that layer l of the sampled layers sent to the experts of rank r.
    """

    step: int
    span: float
    rows: list[list[int]]


class Meet(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card has arrived at a collective; `first`: at the first one of a step in which it has `tokens` of its own."""

    tokens: int
    first: bool


class Met(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All cards have arrived: what goes to whose experts, and how much longer than it needs to the step must last (1 = no longer)."""

    rows: list[list[int]]
    stretch: float


class Busy(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Burn `seconds` of CPU in every scheduling pass from now on."""

    seconds: float


class Publisher(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`stuck`: the rank steps on, and its load snapshots stop."""

    stuck: bool


class GraphVote(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Not `allowed`: the rank votes against every CUDA graph."""

    allowed: bool


class AcceptFactor(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The chance that a drafted token of the rank's requests is accepted becomes `factor` times what it is configured as."""

    factor: float


class KvLinkFactor(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The rank's KV link runs at `factor` times its speed."""

    factor: float


class KvReserve(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """So many tokens of the rank's KV pool are held by nobody's request; 0 gives them back."""

    tokens: int


class Hotspot(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Send `share` of all token copies to the experts of `rank`; None ends it."""

    rank: int
    share: float | None


class Stretch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Every forward takes `factor` times as long, on all cards."""

    factor: float


class Throttle(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card runs at `clock` (1 = all) of its SM clock; its driver gives the reasons of `workload.device.state.Reason`."""

    rank: int
    clock: float
    reasons: int


class SlowMemory(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card's memory clock is at `factor` of what it should be; `single_bit` ECC errors are corrected per second."""

    rank: int
    factor: float
    single_bit: float


class DegradeLink(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card does its part of collectives at `factor` of the usual speed; checksum errors and PCIe replays per second."""

    rank: int
    factor: float
    crc: float
    replays: float


class Incast(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Dispatches into a card take `factor` times as long: its peers' messages queue before it. No counter of the card shows it."""

    rank: int
    factor: float


class Delay(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card takes `seconds` more for every step."""

    rank: int
    seconds: float


class Xid(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A card's driver reports the error `code` of NVIDIA's XID catalogue; 0 forgets it, as a driver's reload does."""

    rank: int
    code: int


CardOrder = Throttle | SlowMemory | DegradeLink | Incast | Delay | Xid


# What a rank's process obeys.
RankOrder = Busy | Publisher | GraphVote | AcceptFactor | KvLinkFactor | KvReserve


class Pin(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Keep `concurrency` requests of these lengths alive on `rank`, renewing each that ends, under the name `name`.

    `fresh` tokens of each prompt are in no cache; None: the whole prompt.
    """

    name: str
    rank: int
    concurrency: int
    prompt: Lengths
    fresh: Lengths | None
    output: Lengths
    renew: bool = True  # False: each of them comes once


class Unpin(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Abort what `Pin` of that name started, and stop renewing."""

    name: str


class Hold(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the ranks produce stays `seconds` in the front end before any client sees it."""

    seconds: float


class Close(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`closed`: the ordinary traffic is turned away, what is under way of it too; pinned requests go on."""

    closed: bool


class Drain(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`drained`: the rank gets no new requests but pinned ones."""

    rank: int
    drained: bool


class Estrange(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """`share` of the requests that a rank gets continue conversations whose prefix another rank holds; 0 ends it."""

    rank: int
    share: float


DeskOrder = Hold | Close | Drain | Estrange


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The process does its work; `port` is where the front end listens (0: it has no port)."""

    port: int = 0


class Spec(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a child process is and which inherited sockets it talks through, by peer name: the first message it reads."""

    name: str
    rank: int  # -1: not a rank
    parent: int
    config: ClusterConfig
    loads_path: str
    workdir: str
    links: dict[str, int]


class Channel:
    """One end of a socket, in a process that may wait on it."""

    def __init__(self, sock: socket.socket, accepts: Any) -> None:
        self.sock = sock
        self._decoder = msgspec.msgpack.Decoder(accepts)
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """Blocks while the other end's buffer is full."""
        body = _encoder.encode(message)
        try:
            self.sock.sendall(_LENGTH.pack(len(body)) + body)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerLostError from error

    def receive(self) -> Any:
        """The next message; waits for it."""
        while (message := self._take()) is None:
            self._fill(0)
        return message

    def drain(self) -> list[Any]:
        """All messages that have arrived; never waits."""
        try:
            while self._fill(socket.MSG_DONTWAIT) == _CHUNK:
                pass
        except BlockingIOError:
            pass
        messages = []
        while (message := self._take()) is not None:
            messages.append(message)
        return messages

    def close(self) -> None:
        self.sock.close()

    def _fill(self, flags: int) -> int:
        try:
            chunk = self.sock.recv(_CHUNK, flags)
        except ConnectionResetError as error:
            raise PeerLostError from error
        if not chunk:
            raise PeerLostError
        self._buffer += chunk
        return len(chunk)

    def _take(self) -> Any:
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return self._decoder.decode(body)


_CHUNK = 65536


class AsyncChannel:
    """One end of a socket, in an event loop. Sending never waits: what a stopped process does not read stays in memory here."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, accepts: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.msgpack.Decoder(accepts)

    @classmethod
    async def open(cls, sock: socket.socket, accepts: Any) -> AsyncChannel:
        reader, writer = await asyncio.open_connection(sock=sock)
        return cls(reader, writer, accepts)

    def send(self, message: msgspec.Struct) -> None:
        body = _encoder.encode(message)
        self._writer.write(_LENGTH.pack(len(body)) + body)

    async def pump(self, handle: Callable[[Any], None]) -> None:
        """Hands every message to `handle`, until the other end is gone."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                handle(self._decoder.decode(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise PeerLostError from error
