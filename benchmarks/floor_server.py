"""The floor under W1: all that a Python program must do that confirms what is synced, encrypted.

    python -m benchmarks.floor_server PORT FILE

One process, uvloop where it is installed. A frame is a u32 little-endian length and that many
bytes, sealed by AES-GCM with a counter as the nonce. A client's holds messages, each behind a u32
length; they are appended to a file, which is synced (`fdatasync`) once for all that one read has
brought, and the answer is their number, u32. There are no streams, indexes, rights, doubles or
readers, and the keys are fixed: only a benchmark may speak like this.
"""

import asyncio
import os
import sys
from contextlib import suppress
from typing import Final, cast

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

_HOST: Final = "127.0.0.1"
_FILE_BYTES_MAX: Final = 67_108_864
"""Then the file is written over from its beginning, as logs are that are used again."""


class Frames:
    """One end of a connection: seals what is sent, cuts and opens what comes."""

    def __init__(self, *, client: bool) -> None:
        keys = AESGCM(bytes(16)), AESGCM(bytes([1]) * 16)
        self._sealing, self._opening = keys if client else reversed(keys)
        self._sealed = self._opened = 0
        self._rest = b""

    def seal(self, data: bytes) -> bytes:
        """One frame."""
        sealed = self._sealing.encrypt(self._sealed.to_bytes(12), data, None)
        self._sealed += 1
        return len(sealed).to_bytes(4, "little") + sealed

    def receive(self, data: bytes) -> list[bytes]:
        """The contents of the frames that are whole now."""
        data, found, place = self._rest + data, list[bytes](), 0
        while (begin := place + 4) <= len(data):
            end = begin + int.from_bytes(data[place:begin], "little")
            if end > len(data):
                break
            found.append(self._opening.decrypt(self._opened.to_bytes(12), data[begin:end], None))
            self._opened += 1
            place = end
        self._rest = data[place:]
        return found


class _Server(asyncio.Protocol):
    def __init__(self, file: int) -> None:
        self._file = file
        self._place = 0
        self._frames = Frames(client=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        contents = self._frames.receive(data)
        if not contents:
            return
        count = 0
        for content in contents:
            place = 0
            while place < len(content):
                place += 4 + int.from_bytes(content[place : place + 4], "little")
                count += 1
        written = b"".join(contents)
        if self._place + len(written) > _FILE_BYTES_MAX:
            self._place = 0
        self._place += os.pwrite(self._file, written, self._place)
        os.fdatasync(self._file)
        self._transport.write(self._frames.seal(count.to_bytes(4, "little")))


async def _serve(port: int, path: str) -> None:
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: _Server(file), _HOST, port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(int(sys.argv[1]), sys.argv[2]))
