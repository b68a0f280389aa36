"""A plain TCP peer of 2021: u16 frames with wire messages, nothing else."""

import asyncio
from typing import Self

from rillnode.codecs.routing.routes import (
    Route,
    WireMessage,
    decode_message,
    encode_message,
    local,
)


class OckamPeer:
    """Sends and receives wire messages over a socket of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: str) -> Self:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def send_frame(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(2, "big") + frame)

    def send(self, onward: str | bytes | Route, payload: bytes, back: str = "me") -> None:
        route = onward if isinstance(onward, tuple) else (local(onward),)
        self.send_frame(encode_message(route, (local(back),), payload))

    async def receive(self, seconds: float = 30.0) -> WireMessage:
        async with asyncio.timeout(seconds):
            length = int.from_bytes(await self.reader.readexactly(2), "big")
            return decode_message(await self.reader.readexactly(length), strict=True)

    async def ask(self, onward: str | bytes | Route, payload: bytes) -> WireMessage:
        self.send(onward, payload)
        return await self.receive()

    async def silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for a while."""
        try:
            await self.receive(seconds)
        except TimeoutError:
            return True
        return False
