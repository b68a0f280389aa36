"""News between the stores on the same logs: told once each, also over a new connection."""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, cast

from rillnode.actors.storage.jetstream.failures import UnansweredError
from rillnode.actors.storage.jetstream.following import Following

NEWS = Struct(">QQ")


class Told:
    """A server that takes one piece of news after the other, when it is let."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.open = asyncio.Event()
        self.fails = False

    def name_of(self, part: str) -> str:
        return part

    async def listen(self, subject: str, heard: Callable[[bytes], None]) -> None:
        """Others are heard of by nobody here."""

    async def tell(self, subject: str, data: bytes) -> None:
        await self.open.wait()
        if self.fails:
            raise UnansweredError("the connection was lost")
        log, sequence = NEWS.unpack(data)
        self.told.append((log, sequence))


async def nothing() -> None:
    """There is nothing to look for."""


def following_of(server: Told) -> Following:
    return Following(cast(Any, server), None, heard=lambda log, sequence: None, look=nothing)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_is_being_told_is_not_told_twice_when_there_is_a_new_connection() -> None:
    async def run() -> None:
        server = Told()
        following = following_of(server)
        following.tell(1, 5)
        following.tell(2, 6)
        await settle()
        await following.begin()
        server.open.set()
        await settle()
        following.end()
        assert server.told == [(1, 5), (2, 6)]

    asyncio.run(run())


def test_what_could_not_be_told_is_told_over_the_next_connection() -> None:
    async def run() -> None:
        server = Told()
        following = following_of(server)
        server.fails = True
        server.open.set()
        following.tell(1, 5)
        await settle()
        server.fails = False
        await following.begin()
        await settle()
        following.end()
        assert server.told == [(1, 5)]

    asyncio.run(run())
