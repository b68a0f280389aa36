"""Tests rillnode's own clients by the public suites; those of plug-ins are in their folders."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from rillnode import (
    BlockingClient,
    BlockingStream,
    Client,
    Stream,
    connect,
    connect_blocking,
)
from rillnode.testing.contract import (
    CancellableClientContract,
    FollowingClientContract,
    Place,
    RepeatingClientContract,
)

READ_MAX: Final = 100_000
CLOSE_SECONDS: Final = 1.0

Native = tuple[Client, Stream]
Blocking = tuple[BlockingClient, BlockingStream]


class TestNative(
    CancellableClientContract[Native],
    RepeatingClientContract[Native],
    FollowingClientContract[Native],
):
    async def connect(self, place: Place) -> Native:
        url = f"noise://{place.address}"
        client = await connect(url, identity=place.identity, node_identity=place.node_identity)
        return client, await client.stream("contract")

    async def push(self, client: Native, data: bytes) -> None:
        await client[1].push(data)

    async def read(self, client: Native, first: int) -> list[bytes]:
        return [entry.data for entry in await client[1].pull(first, READ_MAX)]

    @asynccontextmanager
    async def follow(self, client: Native) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with client[1].tail(start="start") as entries:
            yield (entry.data async for entry in entries)

    async def close(self, client: Native) -> None:
        await client[0].close(timeout_seconds=CLOSE_SECONDS)


class TestBlocking(
    RepeatingClientContract[Blocking],
    FollowingClientContract[Blocking],
):
    """Each call waits on a thread."""

    async def connect(self, place: Place) -> Blocking:
        def made() -> Blocking:
            url = f"noise://{place.address}"
            client = connect_blocking(
                url, identity=place.identity, node_identity=place.node_identity
            )
            return client, client.stream("contract")

        return await self.in_thread(made)

    async def push(self, client: Blocking, data: bytes) -> None:
        await self.in_thread(client[1].push, data)

    async def read(self, client: Blocking, first: int) -> list[bytes]:
        return [entry.data for entry in await self.in_thread(client[1].pull, first, READ_MAX)]

    @asynccontextmanager
    async def follow(self, client: Blocking) -> AsyncGenerator[AsyncIterator[bytes]]:
        entries = client[1].tail(start="start")

        def following() -> bytes | None:
            entry = next(entries, None)
            return None if entry is None else entry.data

        async def each() -> AsyncGenerator[bytes]:
            while (data := await self.in_thread(following)) is not None:
                yield data

        yield each()
        await self.in_thread(entries.close)  # which may be after the client's

    async def close(self, client: Blocking) -> None:
        await self.in_thread(client[0].close, timeout_seconds=CLOSE_SECONDS)
