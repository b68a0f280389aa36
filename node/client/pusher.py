"""A pusher: pushes without waiting for each confirm, and bounds how many are missing."""

import asyncio
from types import TracebackType
from typing import Final, Protocol, Self

from rillnode.codecs import arguments
from rillnode.codecs.errors import RequestError
from rillnode.codecs.keyed import Headers, Key
from rillnode.node.client.producer import WINDOW_BYTES, Data

IN_FLIGHT: Final = 1_000
"""Entries that a pusher leaves unconfirmed."""

_PARTS: Final = 4
"""In how many parts a window goes out, so that one is on its way while others are confirmed."""


class PushNowait(Protocol):
    """`Stream.push_nowait`."""

    def __call__(
        self, data: Data, /, *, key: Key | None, headers: Headers | None, partition: int | None
    ) -> asyncio.Future[int]:
        """Push one entry without waiting."""
        ...


class Pusher:
    """Pushes entries and waits only while too many are unconfirmed; made by `Stream.pusher`.

        async with stream.pusher(in_flight=1_000) as p:
            for line in lines:
                await p.push(line)

    The end of the `async with` waits until all are confirmed. What one task pushes to a partition
    is stored in its order. Beside the entries, their bytes are bounded: 8 MiB.
    """

    def __init__(self, push: PushNowait, in_flight: int) -> None:
        if arguments.whole("in_flight", in_flight) < 1:
            raise RequestError("pusher.invalid", f"in_flight is at least 1, not {in_flight}")
        self._push = push
        self._in_flight_max = in_flight
        self._burst = max(1, in_flight // _PARTS)
        self._pushed = 0
        self._bytes = 0
        self._open: set[asyncio.Future[int]] = set()
        self._error: BaseException | None = None
        self._confirmed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Pusher: {self.in_flight} of {self._in_flight_max} in flight>"

    @property
    def in_flight(self) -> int:
        """Entries that are not confirmed yet."""
        return len(self._open)

    async def push(
        self,
        data: Data,
        *,
        key: Key | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> asyncio.Future[int]:
        """Push one entry; return a future of its index, which need not be awaited.

        It waits while the window is full. Cancelled then, it has not pushed the entry. Arguments as
        of `Stream.push`.

        Raises:
            ArgumentError: something is of another type.
            RillnodeError: this entry, or an earlier one, was refused or is not confirmed; the first
                such error of all. Later entries may be stored.
        """
        if self._pushed % self._burst == 0:
            await asyncio.sleep(0)
        while len(self._open) >= self._in_flight_max or self._bytes > WINDOW_BYTES:
            await self._wait()
        self._raise()
        future = self._push(data, key=key, headers=headers, partition=partition)
        size = memoryview(data).nbytes
        self._pushed += 1
        self._bytes += size
        self._open.add(future)

        def confirmed(done: asyncio.Future[int]) -> None:
            self._open.discard(done)
            self._bytes -= size
            error = None if done.cancelled() else done.exception()
            self._error = self._error or error
            self._confirmed.set()

        future.add_done_callback(confirmed)
        return future

    async def flush(self) -> None:
        """Wait until all that was pushed is confirmed.

        Raises:
            RillnodeError: the first error of all.
        """
        while self._open:
            await self._wait()
        self._raise()

    async def __aenter__(self) -> Self:
        """Nothing more to do."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for all confirms and raise the first error; after one of the block, do neither."""
        if error is None:
            await self.flush()

    async def _wait(self) -> None:
        self._confirmed.clear()
        await self._confirmed.wait()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
