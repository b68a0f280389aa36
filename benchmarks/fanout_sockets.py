"""WebSockets of a load generator that must cost less than any server: they count bytes.

All messages of a job have the same length, so that bytes tell how many have come.
"""

import os
import select
import socket
import struct
from base64 import b64encode
from typing import Final

_OPEN_SECONDS: Final = 30.0
_READ_BYTES: Final = 262_144
_MASKED: Final = 0x80
_TEXT: Final = 0x81


def client_frame(text: bytes) -> bytes:
    """A text frame. Its mask is zero, which changes nothing: any other one would cost time."""
    size = len(text)
    if size < 126:
        return struct.pack(">BBI", _TEXT, _MASKED | size, 0) + text
    if size < 65_536:
        return struct.pack(">BBHI", _TEXT, _MASKED | 126, size, 0) + text
    return struct.pack(">BBQI", _TEXT, _MASKED | 127, size, 0) + text


class Socket:
    """One WebSocket; blocking until `Subscribers` takes it.

    Raises:
        ConnectionError: the server does not open it.
    """

    def __init__(self, port: int, path: str, headers: str = "") -> None:
        self.raw = socket.create_connection(("127.0.0.1", port), timeout=_OPEN_SECONDS)
        self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = b64encode(os.urandom(16)).decode()
        self.raw.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            f"Sec-WebSocket-Version: 13\r\n{headers}\r\n".encode()
        )
        head = self._read_until(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            raise ConnectionError(f"no WebSocket: {head[:200]!r}")

    def ask(self, text: bytes) -> bytes:
        """Send a message and wait for one."""
        self.raw.sendall(client_frame(text))
        return self.receive()

    def receive(self) -> bytes:
        """Wait for one message."""
        _, size = self._read(2)
        if size == 126:
            size = int.from_bytes(self._read(2))
        elif size == 127:
            size = int.from_bytes(self._read(8))
        return self._read(size)

    def _read(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            data = self.raw.recv(count - len(found))
            if not data:
                raise ConnectionError("the server has closed a connection")
            found += data
        return bytes(found)

    def _read_until(self, end: bytes) -> bytes:
        found = b""
        while not found.endswith(end):
            found += self._read(1)
        return found


class Subscribers:
    """All subscribers of a job, read from one thread.

    Attributes:
        bytes: how many have come to each of them.
        total: how many have come to all of them.
    """

    def __init__(self, sockets: list[Socket]) -> None:
        self.bytes = [0] * len(sockets)
        self.total = 0
        self._sockets = [one.raw for one in sockets]
        self._numbers = {one.fileno(): at for at, one in enumerate(self._sockets)}
        self._buffer = bytearray(_READ_BYTES)
        self._epoll = select.epoll()
        for one in self._sockets:
            one.setblocking(False)
            self._epoll.register(one.fileno(), select.EPOLLIN)

    def read(self, seconds: float) -> list[int]:
        """Wait for bytes, at most so long; return the numbers of those to whom some have come.

        Raises:
            ConnectionError: the server has closed a connection.
        """
        # This loop is all that a delivery costs here: the less it does, the faster may servers be.
        buffer, counts, numbers, sockets = self._buffer, self.bytes, self._numbers, self._sockets
        read: list[int] = []
        for descriptor, _ in self._epoll.poll(max(seconds, 0.0)):
            number = numbers[descriptor]
            count = sockets[number].recv_into(buffer)
            if not count:
                raise ConnectionError("the server has closed a connection")
            counts[number] += count
            self.total += count
            read.append(number)
        return read


class Outgoing:
    """Sends a publisher's frames, as far as the server takes them."""

    def __init__(self, publisher: Socket) -> None:
        self._raw = publisher.raw
        self._raw.setblocking(False)
        self._left = memoryview(b"")

    def send(self, frames: bytes = b"") -> bool:
        """Send what is left and some more frames; return whether nothing is left now."""
        if frames:
            self._left = memoryview(bytes(self._left) + frames)
        try:
            while self._left:
                self._left = self._left[self._raw.send(self._left) :]
        except BlockingIOError:
            return False
        return True
