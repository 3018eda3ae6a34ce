"""Both ends of a socket: msgpack frames with a length in front."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgspec

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


class PeerLostError(Exception):
    """The process at the other end is gone."""


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
