"""Declares what tests of an engine of shared logs ask of it, and drives its clients."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from rillnode.actors.log.shared.port import Blobs, Frame, LogLost, Opened, SharedLog

ANSWER_SECONDS: Final = 60.0
"""What takes longer hangs. Machines that test are busy."""

PAGE_BYTES: Final = 1_048_576

T = TypeVar("T")


class Site(Protocol):
    """The servers of one engine, which stand as long as the tests of a module run.

    Clients are not open yet when they are given, and take no more than a second or two to notice
    that nobody answers.
    """

    def make(self) -> tuple[SharedLog, Blobs]:
        """A client of logs that are not there yet, and are never those of an earlier call."""
        ...

    def again(self) -> tuple[SharedLog, Blobs]:
        """One more client, as on another machine, of the logs of the last `make`."""
        ...

    def damage(self, name: str) -> None:
        """Change some bytes of a blob of the last `make`, behind the engine's back."""
        ...

    def stalled(self) -> AbstractContextManager[None]:
        """Within it nothing is answered, and connections stay."""
        ...


Start: TypeAlias = Callable[[Path], AbstractContextManager[Site]]
"""Starts an engine, which may keep its data in a directory."""


class Client:
    """An open client, and what it was told.

    Attributes:
        log: to ask.
        blobs: the same.
        heard: by shard, the largest sequence that it was told of.
    """

    def __init__(self, log: SharedLog, blobs: Blobs) -> None:
        self.log = log
        self.blobs = blobs
        self.heard: dict[int, int] = {}
        self._news = asyncio.Event()
        self._opened: Opened | None = None

    @property
    def opened(self) -> Opened:
        """What `open` has returned."""
        assert self._opened is not None
        return self._opened

    async def open(self, shards: int) -> Opened:
        """Open it; a server that has just started may not answer at once."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_SECONDS
        while True:
            try:
                self._opened = await self.log.open(shards, self._hear)
                return self._opened
            except LogLost:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(0.1)

    async def append(self, shard: int, *items: bytes) -> list[int]:
        """Append frames one after the other, without waiting for answers between."""
        return await asyncio.gather(*[self.log.append(shard, data) for data in items])

    async def read(self, shard: int, after: int, count: int) -> list[Frame]:
        """So many frames at least, in as many reads as it takes: some server may be behind."""
        found: list[Frame] = []
        async with asyncio.timeout(ANSWER_SECONDS):
            while len(found) < count:
                page = await self.log.read(
                    shard, found[-1].sequence if found else after, PAGE_BYTES
                )
                found += page
                if not page:
                    await asyncio.sleep(0.01)
        return found

    async def wait_heard(self, shard: int, sequence: int, seconds: float) -> None:
        """Wait until it was told of that sequence, or a later one."""
        async with asyncio.timeout(seconds):
            while self.heard.get(shard, 0) < sequence:
                self._news.clear()
                await self._news.wait()

    def _hear(self, shard: int, sequence: int) -> None:
        self.heard[shard] = max(sequence, self.heard.get(shard, 0))
        self._news.set()


@asynccontextmanager
async def opened(pair: tuple[SharedLog, Blobs], shards: int = 2) -> AsyncGenerator[Client]:
    """A client within the block."""
    client = Client(*pair)
    await client.open(shards)
    try:
        yield client
    finally:
        await client.log.close()


async def until(
    ask: Callable[[], Awaitable[T]], fits: Callable[[T], bool], seconds: float = ANSWER_SECONDS
) -> T:
    """What is answered once it fits: servers that are behind get there."""
    async with asyncio.timeout(seconds):
        while not fits(answer := await ask()):
            await asyncio.sleep(0.02)
        return answer


def data_of(frames: Sequence[Frame]) -> list[bytes]:
    """Without their sequences."""
    return [frame.data for frame in frames]
