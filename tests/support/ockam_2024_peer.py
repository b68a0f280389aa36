"""A plain TCP peer of 2024: a greeting, then u32 frames with CBOR messages."""

import asyncio
from typing import Self

from ockam_peer import OckamPeer
from rillnode.codecs.routing.routes import Route, WireMessage, local
from rillnode.codecs.routing.wire import wire_codec

PATIENCE_SECONDS = 30.0


class Ockam2024Peer(OckamPeer):
    """Sends and receives wire messages over a socket of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.wire = wire_codec("cbor")
        self.greeted = False
        writer.write(b"\x01")

    @classmethod
    async def connect_and_wait(cls, address: str) -> Self:
        """Connect, and say nothing before the greeting is answered."""
        peer = await cls.connect(address)
        await peer.read_greeting()
        return peer

    async def read_greeting(self) -> None:
        if not self.greeted:
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await self.reader.readexactly(1) == b"\x01"
            self.greeted = True

    def send_frame(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    def send(self, onward: str | bytes | Route, payload: bytes, back: str = "me") -> None:
        route = onward if isinstance(onward, tuple) else (local(onward),)
        self.send_frame(self.wire.encode(WireMessage(route, (local(back),), payload)))

    async def receive_frame(self, seconds: float = PATIENCE_SECONDS) -> bytes:
        async with asyncio.timeout(seconds):
            await self.read_greeting()
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(length)

    async def receive(self, seconds: float = PATIENCE_SECONDS) -> WireMessage:
        (message,) = self.wire.decode([await self.receive_frame(seconds)])
        return message
