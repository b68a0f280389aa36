"""The journal of the store on JetStream, when its own writes overtake what it reads."""

import asyncio
from itertools import count
from typing import Any, cast

from rillnode.actors.storage import PutRecord
from rillnode.actors.storage.jetstream.frames import JournalFrame
from rillnode.actors.storage.jetstream.gate import Gate
from rillnode.actors.storage.jetstream.journal import Journal
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.server import Message
from rillnode.actors.storage.layout import record_key

OPTIONS = JetStreamOptions(servers=())


class Kept:
    """A server that keeps what is published; it acknowledges that, and sends it, when it is let."""

    room_bytes = 1_000_000

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.acknowledges, self.sends = asyncio.Event(), asyncio.Event()

    def name_of(self, part: str) -> str:
        return part

    async def publish(self, name: str, data: bytes, *, after: int) -> int:
        self.kept.append(data)
        await self.acknowledges.wait()
        return after + 1

    async def last_sequence(self, name: str) -> int:
        return len(self.kept)

    async def get(self, name: str, sequence: int, *, committed: bool = True) -> Message:
        await self.sends.wait()
        return Message(sequence, self.kept[sequence - 1])


async def nothing() -> None:
    """The connection is not at fault."""


def test_an_own_write_that_is_read_late_is_no_news() -> None:
    """By then its value may have been replaced, here, and nobody would tell of that."""

    async def run() -> None:
        server = Kept()
        gate = Gate(OPTIONS, check=nothing, on_health=lambda _: None, on_shut=lambda _: None)
        gate.open()
        numbers = count()
        learned: list[JournalFrame] = []
        journal = Journal(
            cast(Any, server), gate, OPTIONS, lambda: b"%d" % next(numbers), learning=learned.append
        )
        written = journal.submit(PutRecord(key="one", value=b"1"))
        await settle()
        reading = asyncio.create_task(journal.catch_up())
        await settle()
        server.acknowledges.set()
        await written
        await journal.submit(PutRecord(key="one", value=b"2"))
        server.sends.set()
        await reading
        assert learned == []
        assert await journal.value(record_key("one")) == b"2"

    asyncio.run(run())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
